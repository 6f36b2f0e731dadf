package bloom_test

import (
	"context"
	"fmt"
	"log"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/bloom"
)

func ExampleFilter() {
	ctx := context.Background()
	gate := core.Must(core.NewMemory(core.Config{}))
	seen := core.Must(bloom.New(gate, bloom.Config{Name: "pages", Items: 1_000_000, FalsePositives: 0.001}))
	for _, page := range []string{"/a", "/b", "/a"} {
		isNew, err := seen.TestAndAdd(ctx, page)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(page, isNew[0])
	}
	fmt.Println(seen.Bytes(), "bytes,", seen.Hashes(), "bits of an item")
	// Output:
	// /a true
	// /b true
	// /a false
	// 1869314 bytes, 10 bits of an item
}
