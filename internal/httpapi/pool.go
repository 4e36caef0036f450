package httpapi

import (
	"context"
	"net/http"

	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
)

// PoolBody is one kind of sandbox that waits for code at a worker.
type PoolBody struct {
	Worker        string  `json:"worker_id"`
	Driver        string  `json:"driver"`
	Image         string  `json:"image"`
	Language      string  `json:"language"`
	MilliCPU      int64   `json:"milli_cpu" doc:"The limit on processors of its class, in thousandths; 0 is none."`
	MemoryBytes   int64   `json:"memory_bytes" doc:"The limit on memory of its class; 0 is none."`
	Wanted        int     `json:"wanted" doc:"How many shall wait now."`
	Waiting       int     `json:"waiting" doc:"How many do."`
	Making        int     `json:"making"`
	Hits          int64   `json:"hits" doc:"Runs that found one waiting, since the worker started."`
	Misses        int64   `json:"misses" doc:"Runs that found none, and were given a fresh one."`
	Discards      int64   `json:"discards" doc:"Those that were found dead when they were wanted."`
	OldestSeconds float64 `json:"oldest_seconds"`
}

func poolBodies(pools []run.Pool) []PoolBody {
	list := []PoolBody{}
	for _, p := range pools {
		for _, c := range p.Classes {
			list = append(list, PoolBody{
				Worker: p.Worker, Driver: c.Driver, Image: c.Image, Language: c.Language, MilliCPU: c.Limits.MilliCPU, MemoryBytes: c.Limits.Memory,
				Wanted: c.Wanted, Waiting: c.Waiting, Making: c.Making, Hits: c.Hits, Misses: c.Misses, Discards: c.Discards, OldestSeconds: c.Oldest.Seconds(),
			})
		}
	}
	return list
}

type poolOutput struct {
	Body []PoolBody `nullable:"false"`
}

// LanguageBody is a language that code can be written in.
type LanguageBody struct {
	Name     string   `json:"name"`
	Aliases  []string `json:"aliases" nullable:"false"`
	File     string   `json:"file" doc:"The file that the code goes into."`
	Compiled bool     `json:"compiled" doc:"Whether a compile step goes before the program."`
	Image    string   `json:"image,omitempty" doc:"The image that it runs in where a request names none."`
	Active   bool     `json:"active" doc:"Whether a connected worker can run it."`
	Reason   string   `json:"reason,omitempty" doc:"Why it is not active."`
}

type languagesOutput struct {
	Body []LanguageBody `nullable:"false"`
}

func languageBodies(all []language.Status) []LanguageBody {
	list := []LanguageBody{}
	for _, l := range all {
		list = append(list, LanguageBody{
			Name: l.Name, Aliases: append([]string{}, l.Aliases...), File: l.File, Compiled: l.Compiled, Image: l.Image, Active: l.Active, Reason: l.Reason,
		})
	}
	return list
}

func (a *API) registerPool() {
	register(a, route{
		method: http.MethodGet, path: "/pool", action: policy.Read, id: "getPool", tag: "runs", summary: "See which sandboxes wait for code",
	}, func(ctx context.Context, _ *struct{}) (*poolOutput, error) {
		return &poolOutput{Body: poolBodies(a.cfg.Manager.Pool(ctx))}, nil
	})
	register(a, route{
		method: http.MethodGet, path: "/languages", action: policy.Read, id: "listLanguages", tag: "runs", summary: "List the languages that code can be written in",
	}, func(context.Context, *struct{}) (*languagesOutput, error) {
		return &languagesOutput{Body: languageBodies(a.cfg.Manager.Languages())}, nil
	})
}
