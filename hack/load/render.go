package main

import (
	"fmt"
	"html"
	"io"
	"sort"
	"strings"
)

func ratio(ours, upstream float64) string {
	if ours <= 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f×", upstream/ours)
}

func printTable(w io.Writer, r *Results) {
	fmt.Fprintf(w, "%s; %s\n\n", r.Machine, r.Load)
	fmt.Fprintf(w, "%-18s %12s %12s %8s %10s %10s %9s %9s\n", "operation", "CPU µs ours", "upstream", "less", "/s ours", "upstream", "p99 ours", "upstream")
	for _, name := range r.Order {
		o := r.Operations[name]
		fmt.Fprintf(w, "%-18s %12.0f %12.0f %8s %10.0f %10.0f %9.1f %9.1f\n", name, o.Ours.CPUMicros, o.Upstream.CPUMicros,
			ratio(o.Ours.CPUMicros, o.Upstream.CPUMicros), o.Ours.PerSecond, o.Upstream.PerSecond, o.Ours.P99, o.Upstream.P99)
	}
	for _, name := range memoryNames(r) {
		m := r.Memory[name]
		fmt.Fprintf(w, "%-18s %9.0f MB %9.0f MB %8s\n", "memory "+name, m.Ours, m.Upstream, ratio(m.Ours, m.Upstream))
	}
	fmt.Fprintf(w, "%-18s %9.0f ms %9.0f ms %8s\n", "start to /readyz", r.Start.Ours, r.Start.Upstream, ratio(r.Start.Ours, r.Start.Upstream))
}

func memoryNames(r *Results) []string {
	names := make([]string, 0, len(r.Memory))
	for name := range r.Memory {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// page shows the ratios as bars, in one file without anything from outside.
func page(r *Results) string {
	var b strings.Builder
	b.WriteString(`<!doctype html><meta charset="utf-8"><title>API server: ours and upstream's</title><style>
:root{color-scheme:light dark}body{font:15px/1.4 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%}td,th{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #8884}
td:first-child,th:first-child{text-align:left}.bar{display:block;height:.55rem;border-radius:2px;background:#4a7}.bar.up{background:#a86}td.plot{width:18rem}</style>`)
	fmt.Fprintf(&b, "<h1>API server: ours and upstream's</h1><p>%s; %s. Processor time of the server for one operation, etcd's included; bars are relative to the larger one.</p>",
		html.EscapeString(r.Machine), html.EscapeString(r.Load))
	b.WriteString("<table><tr><th>operation<th>ours µs<th>upstream µs<th>less<th>ours /s<th>upstream /s<th></tr>")
	for _, name := range r.Order {
		o := r.Operations[name]
		most := max(o.Ours.CPUMicros, o.Upstream.CPUMicros, 1)
		fmt.Fprintf(&b, `<tr><td>%s<td>%.0f<td>%.0f<td>%s<td>%.0f<td>%.0f<td class="plot"><span class="bar" style="width:%.1f%%"></span><span class="bar up" style="width:%.1f%%"></span></tr>`,
			html.EscapeString(name), o.Ours.CPUMicros, o.Upstream.CPUMicros, ratio(o.Ours.CPUMicros, o.Upstream.CPUMicros), o.Ours.PerSecond, o.Upstream.PerSecond,
			100*o.Ours.CPUMicros/most, 100*o.Upstream.CPUMicros/most)
	}
	b.WriteString("</table><h2>Memory</h2><table><tr><th>state<th>ours MB<th>upstream MB<th>less</tr>")
	for _, name := range memoryNames(r) {
		m := r.Memory[name]
		fmt.Fprintf(&b, "<tr><td>%s<td>%.0f<td>%.0f<td>%s</tr>", html.EscapeString(name), m.Ours, m.Upstream, ratio(m.Ours, m.Upstream))
	}
	fmt.Fprintf(&b, "<tr><td>start to /readyz, ms<td>%.0f<td>%.0f<td>%s</tr></table>\n", r.Start.Ours, r.Start.Upstream, ratio(r.Start.Ours, r.Start.Upstream))
	return b.String()
}
