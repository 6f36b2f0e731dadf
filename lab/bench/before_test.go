package main

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/headgate/headgate/lab/bench/internal/report"
)

// A program that fails after it has printed its page has decided wrongly: its figures count, and its
// error is known. One that prints no page has no figures.
func TestOlderRevisionThatFails(t *testing.T) {
	const page = "echo '### A'; echo '| flags |'; echo '| --- |'; echo \"| $* |\"\n"
	table := func(flags string) []report.Table {
		return []report.Table{{Title: "A", Columns: []string{"flags"}, Rows: [][]string{{flags}}}}
	}
	for name, c := range map[string]struct {
		script, part string
		smoke, fails bool
		tables       []report.Table
	}{
		"right":   {script: page, part: "locks", tables: table("-only locks -rounds 3")},
		"smoke":   {script: page, part: "locks", smoke: true, tables: table("-only locks -rounds 3 -smoke")},
		"wrong":   {script: page + "exit 1", part: "locks", fails: true, tables: table("-only locks -rounds 3")},
		"no page": {script: "exit 1", part: "locks", fails: true},
		"no part": {script: "exit 1", part: "plans"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &before{dir: t.TempDir(), parts: []string{"locks"}, smoke: c.smoke}
			b.program = filepath.Join(b.dir, "bench")
			if err := os.WriteFile(b.program, []byte("#!/bin/sh\n"+c.script), 0o755); err != nil {
				t.Fatal(err)
			}
			tables, err := b.run(t.Context(), c.part, 3, io.Discard)
			if (err != nil) != c.fails || !reflect.DeepEqual(tables, c.tables) {
				t.Errorf("%+v, %v", tables, err)
			}
		})
	}
}
