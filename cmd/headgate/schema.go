package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/plans"
)

func newSchema(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of files of plans, for editors",
		Args:  cobra.NoArgs,
		RunE: action(func(context.Context, []string) error {
			_, err := fmt.Fprint(a.out, plans.Schema())
			return err
		}),
	}
}
