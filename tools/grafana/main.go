// Reads dashboards as strictly as Grafana's published schema allows: an unknown field, a wrong type, a value outside of
// its list, or a panel or query of another kind than those registered here is an error. Given files; prints what is
// wrong with each on standard output. Exit codes: 0 all are right, 1 one is not, 2 a file cannot be read.
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

const rowType = "row"

func main() {
	runtime := cog.NewRuntime()
	runtime.RegisterPanelcfgVariant(bargauge.VariantConfig())
	runtime.RegisterPanelcfgVariant(stat.VariantConfig())
	runtime.RegisterPanelcfgVariant(table.VariantConfig())
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	runtime.RegisterDataqueryVariant(prometheus.VariantConfig())

	code := 0
	for _, path := range os.Args[1:] {
		text, err := os.ReadFile(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		for _, problem := range problems(text) {
			fmt.Printf("%s: %s\n", path, problem)
			code = 1
		}
	}
	os.Exit(code)
}

func problems(text []byte) []string {
	var found []string
	page := dashboard.Dashboard{}
	if err := page.UnmarshalJSONStrict(text); err != nil {
		return []string{err.Error()}
	}
	if err := page.Validate(); err != nil {
		found = append(found, err.Error())
	}
	for index, item := range page.Panels {
		if item.Panel == nil {
			continue
		}
		if _, isKnown := cog.ConfigForPanelcfgVariant(item.Panel.Type); !isKnown && item.Panel.Type != rowType {
			found = append(found, fmt.Sprintf("panels[%d]: no schema for type %q", index, item.Panel.Type))
		}
		for number, target := range item.Panel.Targets {
			if _, isPrometheus := target.(*prometheus.Dataquery); isPrometheus {
				continue
			}
			if _, isPrometheus := target.(prometheus.Dataquery); !isPrometheus {
				found = append(found, fmt.Sprintf("panels[%d].targets[%d]: not a query of Prometheus", index, number))
			}
		}
	}
	return found
}
