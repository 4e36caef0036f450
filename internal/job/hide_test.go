package job

import (
	"encoding/json"
	"testing"
)

func TestValuesOfVariablesAreHidden(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		`{"action":"exec", "command":["env"]}`: `{"action":"exec", "command":["env"]}`,
		`{"env":{"A":"s","B":1},"x":1}`:        `{"env":{"A":"(hidden)","B":"(hidden)"},"x":1}`,
		`{"\u0065nv":{"A":"s"}}`:               `{"env":{"A":"(hidden)"}}`,
		`{"env":"s"}`:                          `{"env":"(hidden)"}`,
		`{"env":{}}`:                           `{"env":{}}`,
		`[]`:                                   `[]`, ``: ``,
	} {
		if got := string(HideEnv(json.RawMessage(given))); got != want {
			t.Errorf("%s became %s, want %s", given, got, want)
		}
	}
	plan := `{"title":"t","tasks":[{"payload":{"env":{"A":"s"}}},{"title":"env"},{"payload":{"x":[ 1 ]}}],"env":{"kept":"as it is"}}`
	want := `{"env":{"kept":"as it is"},"tasks":[{"payload":{"env":{"A":"(hidden)"}}},{"title":"env"},{"payload":{"x":[1]}}],"title":"t"}`
	if got := string(HidePlanEnv(json.RawMessage(plan))); got != want {
		t.Errorf("the plan became %s, want %s", got, want)
	}
	plain := `{"title": "t", "tasks": [ {} ]}`
	if got := string(HidePlanEnv(json.RawMessage(plain))); got != plain {
		t.Errorf("a plan without variables became %s", got)
	}
}
