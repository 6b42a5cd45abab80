// Reads dashboards as Grafana does: with the types that Grafana generates from its own schema.
//
// Owns: what it says of each file. Never touches: the files. Missing fields are ignored, because Grafana fills in defaults.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

const missing = "required field is missing from input"

func main() {
	plugins.RegisterDefaultPlugins()
	wrong := 0
	for _, path := range os.Args[1:] {
		for _, err := range problems(path) {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			wrong++
		}
	}
	if wrong > 0 {
		os.Exit(1)
	}
}

// problems returns what Grafana would not understand of the dashboard at path.
func problems(path string) []error {
	text, err := os.ReadFile(path)
	if err != nil {
		return []error{err}
	}
	var read dashboard.Dashboard
	var left []error
	for _, err := range []error{read.UnmarshalJSONStrict(text), read.Validate()} {
		var all cog.BuildErrors
		switch {
		case errors.As(err, &all):
			for _, each := range all {
				if each.Message != missing {
					left = append(left, each)
				}
			}
		case err != nil:
			left = append(left, err)
		}
	}
	return left
}
