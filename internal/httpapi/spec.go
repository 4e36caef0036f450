package httpapi

import (
	"fmt"

	"github.com/danielgtaylor/huma/v2"
)

// Spec returns the OpenAPI description of this door as YAML. It is the same
// for every build of the same code.
func Spec() ([]byte, error) {
	a, err := New(Config{Loopback: true})
	if err != nil {
		return nil, err
	}
	spec, err := a.huma.OpenAPI().YAML()
	if err != nil {
		return nil, fmt.Errorf("write OpenAPI description: %w", err)
	}
	return spec, nil
}

// describe says what OpenAPI cannot learn from the operations.
func describe(api *huma.OpenAPI) {
	api.Info.Description = "Aurea gives every agent, and every piece of untrusted code, a computer of its own.\n\n" +
		"The paths under `/api/v1` that begin with `prds`, `jobs`, `events`, `ws`, `health` and `ready` are served without that prefix too.\n\n" +
		"Every error is a problem (RFC 9457) with a stable `code` and a `detail` that says what was wrong and what to do about it: " +
		"422 for input that cannot be taken (also for a body that is not JSON), 409 for a state that forbids it, 413 for a body over 8 MiB, " +
		"429 and 503 with `Retry-After`.\n\n" +
		"On a server that is bound to loopback no key is needed. Elsewhere send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`."
	api.Info.License = &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}
	api.Servers = []*huma.Server{{URL: "/"}}
	api.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"bearer": {Type: "http", Scheme: "bearer"},
		"key":    {Type: "apiKey", In: "header", Name: "X-API-Key"},
	}
	api.Tags = []*huma.Tag{
		{Name: "plans", Description: "What is to be done."},
		{Name: "jobs", Description: "What becomes of it."},
		{Name: "work", Description: "For workers that speak plain HTTP."},
		{Name: "events", Description: "The record, as it grows."},
		{Name: "evidence", Description: "What ran, what it said, what it left."},
		{Name: "queue", Description: "How much there is to do, and who does it."},
		{Name: "audit", Description: "What was decided and who acted, in a log that cannot be bent unseen."},
		{Name: "system", Description: "How the whole is doing."},
	}
}
