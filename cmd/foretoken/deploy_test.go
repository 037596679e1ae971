package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/serving"
	"github.com/foretoken/foretoken/internal/batch"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/server"
)

// deployed reads a file of the folder deploy.
func deployed(t *testing.T, name string) []byte {
	t.Helper()
	return filetest.Read(t, filepath.Join("../../deploy", name))
}

// serveArguments holds arguments against the flags of serve, and returns how long it drains.
func serveArguments(t *testing.T, where string, args []string) (drain time.Duration) {
	t.Helper()
	if len(args) == 0 || args[0] != "serve" {
		t.Fatalf("%s: the arguments are %q, want those of serve", where, args)
	}
	cmd := serving.Serve()
	if err := cmd.ParseFlags(args[1:]); err != nil || cmd.Flags().NArg() > 0 {
		t.Fatalf("%s: %q: %v, and %q is left", where, args, err, cmd.Flags().Args())
	}
	drain, err := cmd.Flags().GetDuration("drain-timeout")
	if err != nil {
		t.Fatal(err)
	}
	return drain
}

type probe struct {
	HTTPGet struct{ Path, Port string } `json:"httpGet"`
}

type container struct {
	Args  []string
	Ports []struct {
		Name          string
		ContainerPort int `json:"containerPort"`
	}
	Env []struct {
		Name      string
		ValueFrom struct {
			SecretKeyRef struct{ Name, Key string } `json:"secretKeyRef"`
		} `json:"valueFrom"`
	}
	Startup   probe `json:"startupProbe"`
	Readiness probe `json:"readinessProbe"`
	Liveness  probe `json:"livenessProbe"`
	Lifecycle struct {
		PreStop struct{ Sleep struct{ Seconds int } } `json:"preStop"`
	}
	Mounts []struct {
		MountPath string `json:"mountPath"`
	} `json:"volumeMounts"`
}

type deployment struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		Selector struct {
			Labels map[string]string `json:"matchLabels"`
		}
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Grace    int `json:"terminationGracePeriodSeconds"`
				Security struct {
					NonRoot bool `json:"runAsNonRoot"`
					User    int  `json:"runAsUser"`
				} `json:"securityContext"`
				Containers []container
			}
		}
	}
}

// offered is a server with the embedded model that has answered a request, so that its
// metrics have all names.
func offered(t *testing.T) http.Handler {
	t.Helper()
	folder, err := batch.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = folder.Close() })
	s, err := server.New(server.Options{
		Models: []server.Model{{Name: "tiny", Path: foretoken.Tiny}}, Log: slog.New(slog.DiscardHandler),
		Batches: &server.Batches{Store: folder, Queue: batch.NewMemory()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	h := s.Handler()
	if status, text := fetchFrom(h, http.MethodPost, "/v1/completions", `{"prompt": "Once", "max_tokens": 2, "ignore_eos": true}`); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	return h
}

func fetchFrom(h http.Handler, method, path, body string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

func TestKubernetesManifestsFitTheProgram(t *testing.T) {
	var d deployment
	manifest(t, "kubernetes/deployment.yaml", &d)
	pod := d.Spec.Template.Spec
	if d.Kind != "Deployment" || len(pod.Containers) != 1 || len(d.Spec.Selector.Labels) == 0 {
		t.Fatalf("%+v", d)
	}
	for name, label := range d.Spec.Selector.Labels {
		if d.Spec.Template.Metadata.Labels[name] != label {
			t.Errorf("the pods have no label %s: %s", name, label)
		}
	}
	c := pod.Containers[0]
	drain := serveArguments(t, "deployment.yaml", c.Args)
	if least := drain + time.Duration(c.Lifecycle.PreStop.Sleep.Seconds)*time.Second; time.Duration(pod.Grace)*time.Second < least {
		t.Errorf("pods are killed after %d s, and may need %v", pod.Grace, least)
	}
	if len(c.Ports) != 1 || c.Ports[0].ContainerPort != 8080 || !slices.Contains(c.Args, "--port=8080") {
		t.Errorf("ports %+v, arguments %q", c.Ports, c.Args)
	}
	if len(c.Env) != 1 || c.Env[0].Name != flags.KeyVariable {
		t.Errorf("environment %+v", c.Env)
	}
	h := offered(t)
	for _, p := range []probe{c.Startup, c.Readiness, c.Liveness} {
		if status, text := fetchFrom(h, http.MethodGet, p.HTTPGet.Path, ""); p.HTTPGet.Port != c.Ports[0].Name || status != http.StatusOK && status != http.StatusServiceUnavailable {
			t.Errorf("probe of %s at port %s: %d %s", p.HTTPGet.Path, p.HTTPGet.Port, status, text)
		}
	}

	var service struct {
		Spec struct {
			Selector map[string]string
			Ports    []struct {
				TargetPort string `json:"targetPort"`
			}
		}
	}
	manifest(t, "kubernetes/service.yaml", &service)
	if len(service.Spec.Ports) != 1 || service.Spec.Ports[0].TargetPort != c.Ports[0].Name {
		t.Errorf("service: %+v", service)
	}
	for name, label := range service.Spec.Selector {
		if d.Spec.Template.Metadata.Labels[name] != label {
			t.Errorf("the service asks for the label %s: %s", name, label)
		}
	}
	checkMonitoring(t, h, &d)
}

// checkMonitoring compares the monitoring configuration with the existing metrics.
func checkMonitoring(t *testing.T, h http.Handler, d *deployment) {
	t.Helper()
	c := d.Spec.Template.Spec.Containers[0]
	var monitor struct {
		Spec struct {
			Endpoints []struct {
				Port, Path    string
				Authorization struct{ Credentials struct{ Name, Key string } }
			} `json:"podMetricsEndpoints"`
		}
	}
	manifest(t, "kubernetes/podmonitor.yaml", &monitor)
	e := monitor.Spec.Endpoints[0]
	status, metrics := fetchFrom(h, http.MethodGet, e.Path, "")
	if status != http.StatusOK || e.Port != c.Ports[0].Name || e.Authorization.Credentials != c.Env[0].ValueFrom.SecretKeyRef {
		t.Errorf("pod monitor: %d with %+v, and the pods have %+v", status, e, c)
	}
	var scaler struct {
		Spec struct {
			Target  struct{ Kind, Name string } `json:"scaleTargetRef"`
			Metrics []struct {
				Pods struct{ Metric struct{ Name string } }
			}
		}
	}
	manifest(t, "kubernetes/autoscaler.yaml", &scaler)
	if scaler.Spec.Target.Kind != d.Kind || scaler.Spec.Target.Name != d.Metadata.Name {
		t.Errorf("the autoscaler is for %+v", scaler.Spec.Target)
	}
	for _, m := range scaler.Spec.Metrics {
		if !strings.Contains(metrics, "\n"+m.Pods.Metric.Name+"{") {
			t.Errorf("there is no metric %q in\n%s", m.Pods.Metric.Name, metrics)
		}
	}
	page := filetest.Read(t, "../../docs/server-api.md")
	for _, name := range regexp.MustCompile("`(foretoken_\\w+)`").FindAllStringSubmatch(string(page), -1) {
		if !regexp.MustCompile("(?m)^" + name[1] + `(_count)?[{ ]`).MatchString(metrics) {
			t.Errorf("docs/server-api.md has the metric %s, which there is not", name[1])
		}
	}
}

func TestKustomizationHasAllManifests(t *testing.T) {
	var k struct{ Resources []string }
	manifest(t, "kubernetes/kustomization.yaml", &k)
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		var v struct {
			Version  string `json:"apiVersion"`
			Kind     string
			Metadata struct{ Name string }
		}
		name := filepath.Base(file)
		manifest(t, "kubernetes/"+name, &v)
		if v.Version == "" || v.Kind == "" {
			t.Errorf("%s: %+v", name, v)
		}
		if v.Kind != "Kustomization" && (!slices.Contains(k.Resources, name) || v.Metadata.Name != "foretoken") {
			t.Errorf("%s is not in kustomization.yaml, or named otherwise: %+v", name, v)
		}
	}
	if len(k.Resources) != len(files)-1 {
		t.Errorf("kustomization.yaml lists %q, and there are %q", k.Resources, files)
	}
}

// image is the contents of a Dockerfile.
type image struct {
	base  []string            // of each stage
	lines map[string][]string // of the last stage, by instruction
}

func readDockerfile(t *testing.T) image {
	t.Helper()
	im := image{}
	text := strings.ReplaceAll(string(deployed(t, "Dockerfile")), "\\\n", " ")
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case word == "" || word[0] == '#':
		case word == "FROM":
			im.base, im.lines = append(im.base, strings.Fields(rest)[0]), map[string][]string{}
		default:
			im.lines[word] = append(im.lines[word], rest)
		}
	}
	return im
}

func TestImageIsEmptyButForTheProgram(t *testing.T) {
	im := readDockerfile(t)
	module := filetest.Read(t, "../../go.mod")
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(module)[1]
	if len(im.base) != 2 || im.base[0] != "golang:"+string(version) || im.base[1] != "scratch" {
		t.Errorf("stages %q, want golang:%s and scratch", im.base, version)
	}
	var d deployment
	manifest(t, "kubernetes/deployment.yaml", &d)
	if user := im.lines["USER"]; len(user) != 1 || user[0] != "65532:65532" || d.Spec.Template.Spec.Security.User != 65532 || !d.Spec.Template.Spec.Security.NonRoot {
		t.Errorf("the image's user is %q, the pods' %+v", user, d.Spec.Template.Spec.Security)
	}
	if mount := d.Spec.Template.Spec.Containers[0].Mounts[0].MountPath; im.lines["VOLUME"][0] != mount || im.lines["ENV"][0] != "HF_HUB_CACHE="+mount {
		t.Errorf("models are mounted at %s and looked for at %q", mount, im.lines["ENV"])
	}
	state, _ := strings.CutPrefix(im.lines["ENV"][1], "XDG_STATE_HOME=")
	if !slices.Contains(im.lines["VOLUME"], state) || !slices.Contains(im.lines["COPY"], "--from=build --chown=65532:65532 "+state+" "+state) {
		t.Errorf("batches are kept in %q, which is not a folder of the user's", state)
	}
	var args []string
	filetest.Decode(t, im.lines["CMD"][0], &args)
	serveArguments(t, "Dockerfile", args)
}

func TestComposeFitsTheProgram(t *testing.T) {
	var file struct {
		Services map[string]struct {
			Build       struct{ Context, Dockerfile string }
			Command     []string
			Environment map[string]string
			Volumes     []string
			Grace       string `json:"stop_grace_period"`
			ReadOnly    bool   `json:"read_only"`
		}
		Volumes map[string]any
	}
	manifest(t, "compose.yaml", &file)
	s := file.Services["foretoken"]
	grace, err := time.ParseDuration(s.Grace)
	if drain := serveArguments(t, "compose.yaml", s.Command); err != nil || grace <= drain {
		t.Errorf("the container is killed after %q, and may need %v: %v", s.Grace, drain, err)
	}
	if _, err := os.Stat(filepath.Join("../../deploy", s.Build.Context, s.Build.Dockerfile)); err != nil {
		t.Error(err)
	}
	var mounted []string
	for _, v := range s.Volumes {
		name, path, _ := strings.Cut(v, ":")
		if _, ok := file.Volumes[name]; !ok {
			t.Errorf("there is no volume %s", name)
		}
		mounted = append(mounted, path)
	}
	if !slices.Equal(mounted, readDockerfile(t).lines["VOLUME"]) || s.Environment[flags.KeyVariable] == "" || !s.ReadOnly {
		t.Errorf("%+v", file)
	}
}

func TestUnitFitsTheProgram(t *testing.T) {
	unit := map[string]string{}
	for line := range strings.Lines(string(deployed(t, "foretoken.service"))) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || name[0] == '#' {
			continue
		}
		if variable, text, ok := strings.Cut(value, "="); ok && name == "Environment" {
			t.Setenv(variable, text)
		}
		unit[name] = value
	}
	if got, want := load.StateFolder(), filepath.FromSlash("/var/lib/"+unit["StateDirectory"]); got != want {
		t.Errorf("batches are kept in %s, and the service can write to %s", got, want)
	}
	words := strings.Fields(unit["ExecStart"])
	drain := serveArguments(t, "foretoken.service", words[1:])
	stop, err := time.ParseDuration(unit["TimeoutStopSec"])
	if err != nil || stop <= drain {
		t.Errorf("it is killed after %v, and may need %v: %v", stop, drain, err)
	}
	for name, want := range map[string]string{"Type": "notify", "DynamicUser": "yes", "ProtectSystem": "strict", "NoNewPrivileges": "yes"} {
		if unit[name] != want {
			t.Errorf("%s=%s, want %s", name, unit[name], want)
		}
	}
	if !strings.Contains(unit["RestrictAddressFamilies"], "AF_UNIX") {
		t.Error("readiness is told through a Unix socket, which is forbidden")
	}
	page, _ := strings.CutPrefix(unit["Documentation"], "man:")
	dir := t.TempDir()
	if got := runIn(t, nil, "man", "--out", dir); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if _, err := os.Stat(filepath.Join(dir, strings.NewReplacer("(", ".", ")", "").Replace(page))); err != nil {
		t.Error(err)
	}
}

func TestManualHasAPageForEachCommand(t *testing.T) {
	dir := t.TempDir()
	if got := runIn(t, nil, "man", "--out", dir); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	for _, c := range newRootCommand().Commands() {
		if c.Hidden {
			continue
		}
		page, err := os.ReadFile(filepath.Join(dir, "foretoken-"+c.Name()+".1"))
		if err != nil || !strings.Contains(string(page), ".SH SYNOPSIS") || !strings.Contains(string(page), c.Short[:12]) {
			t.Errorf("%s: %v\n%.200s", c.Name(), err, page)
		}
	}
	if got := runIn(t, nil, "man"); got.code != 2 || !strings.Contains(got.err, "--out is missing") {
		t.Errorf("%+v", got)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := runIn(t, nil, "completion", shell); got.code != 0 || !strings.Contains(got.out, "foretoken") {
			t.Errorf("completion %s: %d %.200s", shell, got.code, got.out)
		}
	}
}
