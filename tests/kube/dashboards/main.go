// Reads dashboards as Grafana does: with the types that Grafana generates from its own schema.
//
// Owns: what it says of each file. Never touches: the files. A field that is missing is none that Grafana would miss: it fills in its default.
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
	err = read.UnmarshalJSONStrict(text)
	if err == nil {
		err = read.Validate()
	}
	var all cog.BuildErrors
	if !errors.As(err, &all) {
		if err == nil {
			return nil
		}
		return []error{err}
	}
	var left []error
	for _, each := range all {
		if each.Message != missing {
			left = append(left, each)
		}
	}
	return left
}
