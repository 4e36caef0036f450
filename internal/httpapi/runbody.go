package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// RunBody is code to be run, as a client sends it.
type RunBody struct {
	Code             string        `json:"code" minLength:"1" doc:"The program." example:"print('Hello, World!')"`
	Language         string        `json:"language,omitempty" default:"python" doc:"What it is written in; GET /api/v1/languages lists what there is." example:"python"`
	Timeout          *int64        `json:"timeout,omitempty" minimum:"1" maximum:"300" doc:"Seconds until the program is killed; SANDBOX_DEFAULT_TIMEOUT where it is left out."`
	Files            TextMap       `json:"files,omitempty" doc:"Files beside the code: text by plain name."`
	ReadOnly         *bool         `json:"readonly,omitempty" default:"true" doc:"Keep code and files immutable. The folder that AUREA_ARTIFACTS names can be written all the same."`
	CaptureArtifacts *bool         `json:"capture_artifacts,omitempty" default:"true" doc:"Return the files that the program left in its folder of artifacts."`
	Stdin            string        `json:"stdin,omitempty" doc:"What the program reads from its standard input."`
	Args             []string      `json:"args,omitempty" maxItems:"256" nullable:"false" doc:"Its arguments."`
	Env              TextMap       `json:"env,omitempty" doc:"Further environment variables."`
	CPULimit         *float64      `json:"cpu_limit,omitempty" minimum:"0.001" doc:"Processors, such as 0.5; at most AUREA_RUN_MAX_CPU."`
	MemoryLimit      Size          `json:"memory_limit,omitempty" doc:"A size such as \"512m\" or \"1g\", or a number of bytes; at most AUREA_RUN_MAX_MEMORY."`
	Network          string        `json:"network,omitempty" enum:"none" doc:"How far the program can reach. Only none for now."`
	Driver           string        `json:"driver,omitempty" doc:"What the sandbox is made with; the worker's own where it is left out."`
	Image            string        `json:"image,omitempty" doc:"What the sandbox starts from; the worker's own where it is left out."`
	Limits           RunLimitsBody `json:"limits,omitempty" doc:"Further limits; 0 is the worker's own."`
	Webhook          string        `json:"webhook,omitempty" maxLength:"2000" doc:"A URL that is told of the end; only for runs that nobody waits for."`
	ProjectID        int64         `json:"project_id,omitempty" minimum:"0" doc:"The project that it belongs to; where it is left out that of the key, if it is narrowed to one."`
}

// RunLimitsBody are limits that have no field of their own.
type RunLimitsBody struct {
	Processes int64   `json:"processes,omitempty" minimum:"0" doc:"Processes and threads."`
	Disk      Size    `json:"disk,omitempty" doc:"What it may write."`
	OpenFiles int64   `json:"open_files,omitempty" minimum:"0" doc:"Files that a process may hold open."`
	CPUTime   float64 `json:"cpu_time,omitempty" minimum:"0" doc:"Seconds of processor time."`
}

// request is the body in the words of package run.
func (b *RunBody) request() (run.Request, *fault.Error) {
	if b.Limits.CPUTime < 0 || b.Limits.CPUTime > 1e6 {
		return run.Request{}, fault.Field("limits.cpu_time", "is out of range")
	}
	r := run.Request{
		Code: b.Code, Language: b.Language, Timeout: b.Timeout, Files: b.Files, ReadOnly: b.ReadOnly, CaptureArtifacts: b.CaptureArtifacts,
		Stdin: b.Stdin, Args: b.Args, Env: b.Env, Network: b.Network, Driver: b.Driver, Image: b.Image, Processors: b.CPULimit, Webhook: b.Webhook, Project: b.ProjectID,
		Limits: sandbox.Limits{
			Processes: b.Limits.Processes, Disk: int64(b.Limits.Disk), OpenFiles: b.Limits.OpenFiles,
			CPUTime: time.Duration(b.Limits.CPUTime * float64(time.Second)),
		},
	}
	if b.MemoryLimit != 0 {
		memory := int64(b.MemoryLimit)
		r.Memory = &memory
	}
	return r, nil
}

// decodeRun reads one run.
func decodeRun(body []byte) (run.Request, error) {
	if body == nil {
		return run.Request{}, fault.New(fault.Invalid, "The body is empty; send a JSON object with the code.").WithCode("no_body")
	}
	var b RunBody
	if err := bind(body, &b); err != nil {
		return run.Request{}, err
	}
	r, err := b.request()
	if err != nil {
		return run.Request{}, err
	}
	return r, nil
}

// RunsBody is several runs.
type RunsBody struct {
	Runs []RunBody `json:"runs" minItems:"1" maxItems:"1000" nullable:"false" doc:"They are queued together, or none of them is."`
}

// decodeRuns reads one run, or several.
func decodeRuns(body []byte) (reqs []run.Request, several bool, err error) {
	if body != nil && checkDocument(body) == nil && kind(body) == "an object" {
		_, several = members(trim(body))["runs"]
	}
	if !several {
		r, err := decodeRun(body)
		return []run.Request{r}, false, err
	}
	var b RunsBody
	if err := bind(body, &b); err != nil {
		return nil, true, err
	}
	for i := range b.Runs {
		r, err := b.Runs[i].request()
		if err != nil {
			err.Field = member(element("runs", i), err.Field)
			return nil, true, err
		}
		reqs = append(reqs, r)
	}
	return reqs, true, nil
}

// TextMap is text by name.
type TextMap map[string]string

// bind reads an object of strings.
func (m *TextMap) bind(b *binding, path string, raw json.RawMessage) {
	if kind(raw) == "null" || !b.is(path, raw, "an object") {
		return
	}
	*m = TextMap{}
	for name, value := range members(raw) {
		if b.is(member(path, name), value, "a string") {
			(*m)[name] = text(value)
		}
	}
}

// Size is a number of bytes, written as a number or as people write sizes.
type Size int64

// bind reads a number or a string.
func (s *Size) bind(b *binding, path string, raw json.RawMessage) {
	switch kind(raw) {
	case "null":
		return
	case "a string":
		n, err := run.ParseSize(text(raw))
		if err != nil {
			b.wrong(path, "%s", err.Error())
		}
		*s = Size(n)
	case "a number":
		n, err := strconv.ParseInt(string(trim(raw)), 10, 64)
		if err != nil || n < 1 {
			b.wrong(path, "must be a size such as \"512m\" or \"1g\", or a whole number of bytes above 0")
		}
		*s = Size(n)
	default:
		b.wrong(path, "must be a string such as \"512m\" or a number of bytes, not %s", kind(raw))
	}
}

// Schema describes it to OpenAPI.
func (Size) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeString, Examples: []any{"512m"}}, {Type: huma.TypeInteger, Format: "int64", Minimum: new(float64)},
	}}
}

// shown is bytes as text, and whether they had to be written as base64: bytes
// that are no UTF-8 would otherwise come back changed.
func shown(data []byte) (text string, encoded bool) {
	if utf8.Valid(data) {
		return string(data), false
	}
	return base64.StdEncoding.EncodeToString(data), true
}

// legible is output as text: bytes that are no UTF-8 are U+FFFD there, and the
// exact ones are at the output's own path.
func legible(data []byte) string { return strings.ToValidUTF8(string(data), "\uFFFD") }
