package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/nodes"
	"github.com/foretoken/foretoken/internal/backend/remote/link"
)

// nodeArguments holds arguments against the flags of node, and returns the address to listen on and the file of the token.
func nodeArguments(t *testing.T, where string, args []string) (listen, token string) {
	t.Helper()
	if len(args) == 0 || args[0] != "node" {
		t.Fatalf("%s: the arguments are %q, want those of node", where, args)
	}
	cmd := nodes.Node()
	if err := cmd.ParseFlags(args[1:]); err != nil || cmd.Flags().NArg() > 0 {
		t.Fatalf("%s: %q: %v, and %q is left", where, args, err, cmd.Flags().Args())
	}
	return cmd.Flag("listen").Value.String(), cmd.Flag("node-token").Value.String()
}

func TestComposeOfNodesFitsTheProgram(t *testing.T) {
	var file struct {
		Services map[string]struct {
			Command     []string
			Environment map[string]string
			Volumes     []string
			Secrets     []string
			ReadOnly    bool `json:"read_only"`
		}
		Volumes map[string]any
		Secrets map[string]struct{ File string }
	}
	manifest(t, "compose-nodes.yaml", &file)
	leader := file.Services["leader"]
	serveArguments(t, "compose-nodes.yaml", leader.Command)
	if leader.Environment[flags.KeyVariable] == "" || len(file.Services) != 3 {
		t.Errorf("%+v", file)
	}
	for name, s := range file.Services {
		for i, v := range s.Volumes {
			v, _, _ = strings.Cut(v, ":ro")
			name, path, _ := strings.Cut(v, ":")
			if _, ok := file.Volumes[name]; !ok || path != readDockerfile(t).lines["VOLUME"][i] {
				t.Errorf("volume %s", v)
			}
		}
		if len(s.Secrets) != 1 || file.Secrets[s.Secrets[0]].File == "" || !s.ReadOnly {
			t.Errorf("%s: %+v", name, s)
			continue
		}
		token := "/run/secrets/" + s.Secrets[0]
		if i := slices.Index(s.Command, "--node-token"); i < 0 || s.Command[i+1] != token {
			t.Errorf("%s: the token is at %s: %q", name, token, s.Command)
		}
		if name == "leader" {
			continue
		}
		listen, _ := nodeArguments(t, name, s.Command)
		_, port, _ := strings.Cut(listen, ":")
		a, err := link.ParseAddress(name + ":" + port)
		if i := slices.Index(leader.Command, a.String()); err != nil || i < 1 || leader.Command[i-1] != "--node" {
			t.Errorf("the leader does not use %v: %v", a, err)
		}
	}
}

func TestUnitOfNodeFitsTheProgram(t *testing.T) {
	unit := map[string]string{}
	for line := range strings.Lines(string(deployed(t, "foretoken-node.service"))) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || name[0] == '#' {
			continue
		}
		if variable, text, ok := strings.Cut(value, "="); ok && name == "Environment" {
			t.Setenv(variable, text)
		}
		unit[name] = value
	}
	if got, want := load.StateFolder(), filepath.FromSlash("/var/lib/"+unit["StateDirectory"]+"/foretoken"); got != want {
		t.Errorf("keys are kept in %s, and the service can write to %s", got, want)
	}
	line := strings.NewReplacer("%%", "%", "$NODE_FLAGS", "--leader "+strings.Repeat("b", 32)).Replace(unit["ExecStart"])
	if listen, _ := nodeArguments(t, "foretoken-node.service", strings.Fields(line)[1:]); listen != "0.0.0.0:7070" || unit["EnvironmentFile"] == "" {
		t.Errorf("it listens at %s: %v", listen, unit)
	}
	for name, want := range map[string]string{"Type": "exec", "DynamicUser": "yes", "ProtectSystem": "strict", "NoNewPrivileges": "yes", "Documentation": "man:foretoken-node(1)"} {
		if unit[name] != want {
			t.Errorf("%s=%s, want %s", name, unit[name], want)
		}
	}
}

// The page of nodes has every metric of a node, and no other.
func TestNodesPageHasTheMetrics(t *testing.T) {
	n := &place{}
	text := n.node(t).ask(t, "GET", "/metrics", "", nil, nil)
	page := string(deployed(t, "../docs/nodes.md"))
	metric := regexp.MustCompile("foretoken_node_[a-z_]+")
	for _, name := range metric.FindAllString(page, -1) {
		if !strings.Contains(text, "\n"+name+" ") {
			t.Errorf("docs/nodes.md has %s, which there is not", name)
		}
	}
	for _, name := range metric.FindAllString(text, -1) {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("docs/nodes.md has no %s", name)
		}
	}
}
