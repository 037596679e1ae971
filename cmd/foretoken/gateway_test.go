package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/serving"
)

// pickerConfig is the tested part of an EndpointPickerConfig.
type pickerConfig struct {
	Version string `json:"apiVersion"`
	Kind    string
	Plugins []struct {
		Type, Name string
		Parameters struct {
			Port          int
			Path          string
			EngineConfigs []map[string]string `json:"engineConfigs"`
			ModelName     string              `json:"modelName"`
			VLLM          struct{ URL string }
			Processor     struct {
				Block int `json:"blockSizeTokens"`
			} `json:"tokenProcessorConfig"`
			Events struct {
				Pods struct{ SocketPort, ReplaySocketPort int } `json:"podDiscoveryConfig"`
			} `json:"kvEventsConfig"`
		}
	}
	Layer struct {
		Sources []struct {
			Ref        string `json:"pluginRef"`
			Extractors []struct {
				Ref string `json:"pluginRef"`
			}
		}
		Discovery struct {
			Ref string `json:"pluginRef"`
		}
	} `json:"dataLayer"`
	Profiles []struct {
		Plugins []struct {
			Ref string `json:"pluginRef"`
		}
	} `json:"schedulingProfiles"`
}

// offers are the endpoints of a server for a gateway, by its flags.
type offers struct {
	port, metrics, events, replay, model, engine string
}

// newOffers reads the arguments of serve.
func newOffers(t *testing.T, where string, args []string) (o offers) {
	t.Helper()
	serveArguments(t, where, args)
	cmd := serving.Serve()
	if err := cmd.ParseFlags(args[1:]); err != nil {
		t.Fatal(err)
	}
	flag := func(name string) string {
		text := cmd.Flags().Lookup(name).Value.String()
		if i := strings.LastIndexByte(text, ':'); i >= 0 {
			return text[i+1:]
		}
		return text
	}
	o = offers{port: flag("port"), metrics: flag("metrics-addr"), events: flag("kv-events"), replay: flag("kv-events-replay"), model: strings.Trim(flag("model"), `"`), engine: "foretoken"}
	if o.port == "" {
		o.port = fmt.Sprint(serving.DefaultPort)
	}
	if name := cmd.Flags().Lookup("kv-events-name").Value.String(); !strings.HasSuffix(name, ":"+o.port) {
		t.Errorf("%s: the server is called %q in events, and its port is %s", where, name, o.port)
	}
	return o
}

// checkPicker holds the configuration of a picker against the servers that it reads, and their
// metrics.
func checkPicker(t *testing.T, name string, o offers, metrics string) *pickerConfig {
	t.Helper()
	c := &pickerConfig{}
	manifest(t, name, c)
	if c.Version != "llm-d.ai/v1alpha1" || c.Kind != "EndpointPickerConfig" {
		t.Errorf("%s: %s %s", name, c.Version, c.Kind)
	}
	known := map[string]bool{}
	specs := 0
	for _, p := range c.Plugins {
		known[p.Type] = true
		x := &p.Parameters
		switch p.Type {
		case "metrics-data-source":
			if fmt.Sprint(x.Port) != o.metrics || x.Path != "/metrics" {
				t.Errorf("%s: metrics are read at %d%s, and served at %s", name, x.Port, x.Path, o.metrics)
			}
		case "core-metrics-extractor":
			for key, spec := range x.EngineConfigs[0] {
				if key == "name" {
					if spec != o.engine {
						t.Errorf("%s: the engine is called %s, and the label says %s", name, spec, o.engine)
					}
				} else if specs++; !regexp.MustCompile(`(?m)^# TYPE ` + spec + ` gauge$`).MatchString(metrics) {
					t.Errorf("%s: %s is %s, and there is no such gauge", name, key, spec)
				}
			}
		case "token-producer":
			if x.ModelName != o.model || x.VLLM.URL == "" {
				t.Errorf("%s: prompts are rendered for %s at %q, and the servers have %s", name, x.ModelName, x.VLLM.URL, o.model)
			}
		case "precise-prefix-cache-producer":
			if x.Processor.Block != foretoken.PageTokens {
				t.Errorf("%s: blocks of %d tokens, and pages of %d", name, x.Processor.Block, foretoken.PageTokens)
			}
			if e := x.Events.Pods; fmt.Sprint(e.SocketPort) != o.events || fmt.Sprint(e.ReplaySocketPort) != o.replay {
				t.Errorf("%s: events are read at %+v, and published at %s and %s", name, e, o.events, o.replay)
			}
		}
	}
	if specs != 5 {
		t.Errorf("%s: %d metrics, want 5", name, specs)
	}
	refs := []string{}
	for _, s := range c.Layer.Sources {
		refs = append(refs, s.Ref)
		for _, e := range s.Extractors {
			refs = append(refs, e.Ref)
		}
	}
	for _, p := range c.Profiles[0].Plugins {
		refs = append(refs, p.Ref)
	}
	if c.Layer.Discovery.Ref != "" {
		refs = append(refs, c.Layer.Discovery.Ref)
	}
	for _, ref := range refs {
		if !known[ref] {
			t.Errorf("%s: there is no plugin %s", name, ref)
		}
	}
	return c
}

func TestGatewayManifestsFitTheProgram(t *testing.T) {
	const dir = "kubernetes/gateway/"
	var base, d, render deployment
	manifest(t, "kubernetes/deployment.yaml", &base)
	manifest(t, dir+"deployment.yaml", &d)
	c := d.Spec.Template.Spec.Containers[0]
	o := newOffers(t, "gateway/deployment.yaml", c.Args)
	for _, arg := range base.Spec.Template.Spec.Containers[0].Args {
		if !slices.Contains(c.Args, arg) {
			t.Errorf("the pods lose the argument %s behind a gateway", arg)
		}
	}
	if d.Metadata.Name != base.Metadata.Name || c.Ports[0].ContainerPort < 1 || len(c.Ports) != 3 {
		t.Errorf("%+v", d)
	}
	for i, port := range []string{o.metrics, o.events, o.replay} {
		if fmt.Sprint(c.Ports[i].ContainerPort) != port {
			t.Errorf("port %s is not %+v", port, c.Ports[i])
		}
	}
	o.engine = d.Spec.Template.Metadata.Labels["llm-d.ai/engine-type"]

	var pool struct {
		Version  string `json:"apiVersion"`
		Metadata struct{ Name string }
		Spec     struct {
			Selector struct {
				Labels map[string]string `json:"matchLabels"`
			}
			Ports []struct{ Number int } `json:"targetPorts"`
		}
	}
	manifest(t, dir+"inferencepool.yaml", &pool)
	if pool.Version != "inference.networking.k8s.io/v1" || fmt.Sprint(pool.Spec.Ports[0].Number) != o.port || pool.Spec.Selector.Labels["llm-d.ai/engine-type"] != o.engine || len(pool.Spec.Selector.Labels) != 1 {
		t.Errorf("pool: %+v", pool)
	}
	var route struct {
		Spec struct {
			Rules []struct {
				Refs []struct{ Group, Kind, Name string } `json:"backendRefs"`
			}
		}
	}
	manifest(t, dir+"httproute.yaml", &route)
	var objective struct {
		Version string `json:"apiVersion"`
		Spec    struct {
			Pool struct{ Group, Kind, Name string } `json:"poolRef"`
		}
	}
	manifest(t, dir+"inferenceobjective.yaml", &objective)
	if to := route.Spec.Rules[0].Refs[0]; to != objective.Spec.Pool || to.Name != pool.Metadata.Name || to.Group+"/v1" != pool.Version || objective.Version != "llm-d.ai/v1alpha2" {
		t.Errorf("route to %+v, objective of %+v", to, objective)
	}
	var values struct {
		Router struct {
			Servers struct {
				Labels map[string]string      `json:"matchLabels"`
				Ports  []struct{ Number int } `json:"targetPorts"`
			} `json:"modelServers"`
		}
	}
	manifest(t, dir+"epp-values.yaml", &values)
	if s := values.Router.Servers; s.Labels["llm-d.ai/engine-type"] != o.engine || fmt.Sprint(s.Ports[0].Number) != o.port {
		t.Errorf("values: %+v", values)
	}

	_, metrics := fetchFrom(offered(t), http.MethodGet, "/metrics", "")
	checkPicker(t, dir+"epp-config.yaml", o, metrics)
	checkPicker(t, dir+"epp-config-precise.yaml", o, metrics)
	manifest(t, dir+"render.yaml", &render)
	r := render.Spec.Template.Spec.Containers[0]
	serveArguments(t, "gateway/render.yaml", r.Args)
	if !slices.Contains(r.Args, "--model="+o.model) || !slices.Contains(r.Args, "--insecure") {
		t.Errorf("render: %q, and the servers have the model %s", r.Args, o.model)
	}
	var k struct{ Resources []string }
	manifest(t, dir+"kustomization.yaml", &k)
	for _, name := range k.Resources[1:] {
		var any struct{ Kind string }
		if manifest(t, dir+name, &any); any.Kind == "" {
			t.Errorf("%s: %+v", name, any)
		}
	}
}

func TestComposeGatewayFitsTheProgram(t *testing.T) {
	var file struct {
		Services map[string]struct {
			Command  []string
			Networks struct {
				Gateway struct {
					Address string `json:"ipv4_address"`
				}
			}
		}
	}
	manifest(t, "compose-gateway.yaml", &file)
	var list struct {
		Endpoints []struct {
			Name, Address, Port string
			Labels              map[string]string
		}
	}
	manifest(t, "gateway/endpoints.yaml", &list)
	if len(list.Endpoints) != 2 {
		t.Fatalf("%+v", list)
	}
	_, metrics := fetchFrom(offered(t), http.MethodGet, "/metrics", "")
	for _, e := range list.Endpoints {
		s, ok := file.Services[e.Name]
		o := newOffers(t, e.Name, s.Command)
		o.engine = e.Labels["llm-d.ai/engine-type"]
		if !ok || s.Networks.Gateway.Address != e.Address || o.port != e.Port || !slices.Contains(s.Command, e.Address+":"+e.Port) {
			t.Errorf("%+v is not %+v", e, s)
		}
		c := checkPicker(t, "gateway/epp.yaml", o, metrics)
		for _, p := range c.Plugins {
			if url := p.Parameters.VLLM.URL; p.Type == "token-producer" && url != "http://"+list.Endpoints[0].Address+":"+o.port {
				t.Errorf("prompts are rendered at %s", url)
			}
		}
	}
	envoy := string(deployed(t, "gateway/envoy.yaml"))
	if address := file.Services["picker"].Networks.Gateway.Address; !strings.Contains(envoy, "address: "+address+"\n") {
		t.Errorf("the proxy does not know the picker at %s", address)
	}
	if _, err := readYAML(envoy); err != nil {
		t.Error(err)
	}
}

// TestServeOffersGatewaysMore starts the command with a key and with all that gateways read, and
// reads it as they do.
func TestServeOffersGatewaysMore(t *testing.T) {
	t.Setenv(flags.KeyVariable, "secret")
	log, stderr := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	root := newRootCommand()
	root.SetArgs(strings.Fields("serve --port 0 --threads 1 --kv-memory 64MiB --share-prefix-cache --metrics-addr 127.0.0.1:0 --kv-events tcp://127.0.0.1:0 --kv-events-replay tcp://127.0.0.1:0 --kv-events-name here:1"))
	root.SetErr(stderr)
	code := make(chan int, 1)
	go func() {
		code <- execute(ctx, root, stderr)
		_ = stderr.Close()
	}()
	lines := bufio.NewScanner(log)
	at, url := map[string]string{}, ""
	for url == "" && lines.Scan() {
		if m := regexp.MustCompile(`flag=(\S+) address=(\S+)`).FindStringSubmatch(lines.Text()); m != nil {
			at[m[1]] = m[2]
		}
		if m := regexp.MustCompile(`msg=listening url=(\S+)`).FindStringSubmatch(lines.Text()); m != nil {
			url = m[1]
		}
	}
	ready := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "msg=ready") {
				close(ready)
			}
		}
		if err := lines.Err(); err != nil {
			t.Error(err)
		}
	}()
	if len(at) != 3 || url == "" {
		t.Fatalf("listening at %v and %s", at, url)
	}
	<-ready
	get := func(url string) (int, string) {
		a, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = a.Body.Close() }()
		data, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		return a.StatusCode, string(data)
	}
	metrics := "http://" + at["--metrics-addr"]
	if status, text := get(metrics + "/metrics"); status != 200 || !strings.Contains(text, `foretoken_kv_page_tokens{model_name="tiny"} 64`) {
		t.Errorf("metrics: %d %s", status, text)
	}
	if status, text := get(metrics + "/readyz"); status != 200 {
		t.Errorf("ready: %d %s", status, text)
	}
	if status, _ := get(metrics + "/v1/models"); status != 404 {
		t.Errorf("models, where only metrics are: %d", status)
	}
	if status, _ := get(url + "/metrics"); status != 401 {
		t.Errorf("metrics of the API without a key: %d", status)
	}
	for _, flag := range []string{"--kv-events", "--kv-events-replay"} {
		c, err := net.Dial("tcp", at[flag])
		if err != nil {
			t.Fatal(err)
		}
		var greeting [16]byte
		if _, err := io.ReadFull(c, greeting[:]); err != nil || string(greeting[12:]) != "NULL" {
			t.Errorf("%s: %q, %v", flag, greeting, err)
		}
		_ = c.Close()
	}
	cancel()
	if c := <-code; c != exitOK {
		t.Errorf("exit code %d", c)
	}
	<-ended
	if _, err := net.Dial("tcp", at["--metrics-addr"]); err == nil {
		t.Error("metrics are still served")
	}
}
