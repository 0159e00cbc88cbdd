// Command load measures API servers: it starts upstream's kube-apiserver with etcd and Pintle's in turns on loopback, puts the same load
// on both, and prints what an operation costs the server in processor time, beside throughput and latency, and the ratios.
//
//	load --pintle BIN --upstream-bin DIR [--rounds 3] [--pods 10000] [--workers 32] [--watchers 100] [--only ours|upstream] [--steps creates,…] [--out FILE.json] [--html FILE.html]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sort"
	"time"
)

// Figures of one operation.
type Figures struct {
	CPUMicros float64 `json:"cpu_us"`
	PerSecond float64 `json:"ops_per_s"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
}

// Sides has a figure for both servers.
type Sides[T any] struct {
	Ours     T `json:"ours"`
	Upstream T `json:"upstream"`
}

// Results is what is kept.
type Results struct {
	Machine    string                    `json:"machine"`
	Load       string                    `json:"load"`
	Operations map[string]Sides[Figures] `json:"operations"`
	Memory     map[string]Sides[float64] `json:"memory_mb"`
	Start      Sides[float64]            `json:"start_ms"`
	Order      []string                  `json:"-"`
}

type options struct {
	pintle, upstreamBin, out, html, store string
	only, steps                           string
	rounds, pods, workers, watchers       int
}

func main() {
	var o options
	flag.StringVar(&o.pintle, "pintle", "", "the pintle binary")
	flag.StringVar(&o.upstreamBin, "upstream-bin", "", "folder with kube-apiserver and etcd")
	flag.StringVar(&o.store, "store", "embedded", "what Pintle keeps its state in: embedded, memory or etcd")
	flag.StringVar(&o.out, "out", "", "file for the figures")
	flag.StringVar(&o.html, "html", "", "file for the page with plots")
	flag.StringVar(&o.only, "only", "", "for profiles: this server alone, ours or upstream")
	flag.StringVar(&o.steps, "steps", "creates,reads,lists,writes,leases,watches,deletes", "what to do, in this order")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds in turns; the medians count, so an odd number")
	flag.IntVar(&o.pods, "pods", 10000, "pods")
	flag.IntVar(&o.workers, "workers", 32, "concurrent clients")
	flag.IntVar(&o.watchers, "watchers", 100, "watchers")
	flag.Parse()
	if err := o.check(); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if o.only != "" {
		r, err := one(ctx, o, o.only)
		if err != nil {
			fmt.Fprintln(os.Stderr, "load:", err)
			os.Exit(1)
		}
		fmt.Fprintln(os.Stderr, "  memory in MB", r.memory)
		return
	}
	results, err := measure(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	printTable(os.Stdout, results)
	if o.out != "" {
		text, _ := json.MarshalIndent(results, "", "  ")
		if err := os.WriteFile(o.out, append(text, '\n'), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "load:", err)
			os.Exit(1)
		}
	}
	if o.html != "" {
		if err := os.WriteFile(o.html, []byte(page(results)), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "load:", err)
			os.Exit(1)
		}
	}
}

// check what would otherwise fail after minutes, or measure something else.
func (o options) check() error {
	if o.rounds < 1 || o.rounds%2 == 0 {
		return fmt.Errorf("--rounds %d: the medians want an odd number", o.rounds)
	}
	if o.pods < o.workers || o.pods < changes {
		return fmt.Errorf("--pods %d: at least %d, and as many as workers (%d)", o.pods, changes, o.workers)
	}
	if o.only != "" && o.only != "ours" && o.only != "upstream" {
		return fmt.Errorf("--only %s: it is ours or upstream", o.only)
	}
	return nil
}

func measure(ctx context.Context, o options) (*Results, error) {
	var ours, theirs []*run
	for round := range o.rounds {
		for _, side := range []string{"upstream", "ours"} {
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, o.rounds, side)
			r, err := one(ctx, o, side)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", side, err)
			}
			if side == "ours" {
				ours = append(ours, r)
			} else {
				theirs = append(theirs, r)
			}
		}
	}
	results := &Results{
		Machine:    fmt.Sprintf("%s/%s, %d cores", runtime.GOOS, runtime.GOARCH, runtime.NumCPU()),
		Load:       fmt.Sprintf("%d pods, %d workers, %d watchers, %d rounds, store %s", o.pods, o.workers, o.watchers, o.rounds, o.store),
		Operations: map[string]Sides[Figures]{}, Memory: map[string]Sides[float64]{}, Order: ours[0].order,
	}
	for _, name := range ours[0].order {
		results.Operations[name] = Sides[Figures]{medians(ours, name), medians(theirs, name)}
	}
	for name := range ours[0].memory {
		of := func(r *run) float64 { return r.memory[name] }
		results.Memory[name] = Sides[float64]{median(ours, of), median(theirs, of)}
	}
	start := func(r *run) float64 { return float64(r.start.Milliseconds()) }
	results.Start = Sides[float64]{median(ours, start), median(theirs, start)}
	return results, nil
}

// one round against one server.
func one(ctx context.Context, o options, side string) (*run, error) {
	server, err := startServer(ctx, o, side)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	r := &run{options: o, server: server, start: server.took, operations: map[string]Figures{}, memory: map[string]float64{}}
	time.Sleep(2 * time.Second)
	r.memory["at rest"] = server.memory()
	return r, r.all(ctx)
}

func median(runs []*run, of func(*run) float64) float64 {
	values := make([]float64, 0, len(runs))
	for _, r := range runs {
		values = append(values, of(r))
	}
	sort.Float64s(values)
	return values[len(values)/2]
}

func medians(runs []*run, name string) Figures {
	figure := func(of func(Figures) float64) float64 {
		return median(runs, func(r *run) float64 { return of(r.operations[name]) })
	}
	return Figures{
		CPUMicros: figure(func(f Figures) float64 { return f.CPUMicros }), PerSecond: figure(func(f Figures) float64 { return f.PerSecond }),
		P50: figure(func(f Figures) float64 { return f.P50 }), P99: figure(func(f Figures) float64 { return f.P99 }),
	}
}
