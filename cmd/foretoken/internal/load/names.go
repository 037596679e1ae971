package load

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/internal/backend/remote/link"
	"github.com/foretoken/foretoken/internal/hub"
	"github.com/foretoken/foretoken/internal/models"
)

// StateFolder is the program's folder in the folder for state of the XDG base directories. It is empty if there is
// no such folder.
func StateFolder() string {
	dir := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "foretoken")
}

// Identity is the key of this machine, in the folder for state. It is made at the first call.
func Identity(folder string) (*link.Identity, error) {
	if folder == "" { // the key would be another one at each start
		return nil, errors.New("the key of this machine needs a folder: set XDG_STATE_HOME, or --state-dir of 'foretoken node'")
	}
	return link.Open(filepath.Join(folder, "node.key"))
}

// firstSet is the value of the first of the variables that is set, or "".
func firstSet(variables ...string) string {
	for _, v := range variables {
		if value := os.Getenv(v); value != "" {
			return value
		}
	}
	return ""
}

// hubHome is the folder of the hub's programs.
func hubHome() (string, error) {
	if dir := os.Getenv("HF_HOME"); dir != "" {
		return ExpandHome(dir)
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "huggingface"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("the folder for models is unknown: set HF_HOME or HF_HUB_CACHE: %w", err)
	}
	return filepath.Join(home, ".cache", "huggingface"), nil
}

// HubCache is the cache that the hub's programs share.
func HubCache() (hub.Cache, error) {
	if dir := firstSet("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"); dir != "" {
		dir, err := ExpandHome(dir)
		return hub.Cache(dir), err
	}
	home, err := hubHome()
	return hub.Cache(filepath.Join(home, "hub")), err
}

// ExpandHome replaces ~ at the beginning of a folder, which no shell has done inside of a
// variable.
func ExpandHome(dir string) (string, error) {
	rest, ok := strings.CutPrefix(dir, "~")
	if !ok || rest != "" && !os.IsPathSeparator(rest[0]) {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, rest), err
}

// hubToken is the user's token: from the environment, or where the hub's programs keep it.
func hubToken() (string, error) {
	if token := firstSet("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"); token != "" {
		return strings.TrimSpace(token), nil
	}
	file := os.Getenv("HF_TOKEN_PATH")
	if file == "" {
		home, err := hubHome()
		if err != nil {
			return "", nil // then there is no such file either
		}
		file = filepath.Join(home, "token")
	}
	file, err := ExpandHome(file)
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the token for the hub: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// NewHubClient is a client with the settings of the environment.
func NewHubClient(parallel int) (*hub.Client, error) {
	cache, err := HubCache()
	if err != nil {
		return nil, err
	}
	token, err := hubToken()
	if err != nil {
		return nil, err
	}
	offline := slices.Contains([]string{"1", "ON", "YES", "TRUE"}, strings.ToUpper(os.Getenv("HF_HUB_OFFLINE")))
	return hub.New(hub.Options{
		Cache: string(cache), Endpoint: os.Getenv("HF_ENDPOINT"), Token: token, Agent: "foretoken",
		Offline: offline, Parallel: parallel, Proxy: http.ProxyFromEnvironment,
	})
}

// Resolve is the folder or file that a name on the command line stands for: an existing
// one, or that of a repository in the hub's cache. It sends no request.
func Resolve(name string) (string, error) {
	if name == Embedded {
		return name, nil
	}
	return resolve("model", name)
}

// resolve is Resolve for a model or a drafter, which what says.
func resolve(what, name string) (string, error) {
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		return name, nil // opening it reports other errors
	}
	if _, _, err := hub.ParseName(name); err != nil {
		files := "config.json, tokenizer.json and *.safetensors files"
		if what == "drafter" {
			files = "config.json and *.safetensors files, a GGUF file or ORG/NAME"
		}
		return "", fmt.Errorf("%s %s: no such folder; want a folder with %s", what, name, files)
	}
	cache, err := HubCache()
	if err != nil {
		return "", err
	}
	s, err := cache.Find(name)
	path := ""
	if err == nil {
		path, err = s.Path()
	}
	if errors.Is(err, hub.ErrNotCached) {
		remedy := "foretoken pull " + name + " fetches it"
		if !strings.Contains(name, "/") {
			remedy = "foretoken pull ORG/" + name + " fetches it from the Hugging Face hub"
		}
		return "", fmt.Errorf("%s %s: no such folder, and no such %s in the cache: %s, foretoken list shows the cached models (%w)", what, name, what, remedy, err)
	}
	return path, err
}

// CompleteName completes the values of --model: the embedded model, one in the cache, or
// otherwise a folder or file.
func CompleteName(typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names := CachedNames(typed)
	if strings.HasPrefix(Embedded, typed) {
		names = append(names, Embedded)
	}
	return names, cobra.ShellCompDirectiveDefault
}

// CachedNames are the models in the cache whose names begin with typed.
func CachedNames(typed string) []cobra.Completion {
	cache, err := HubCache()
	if err != nil {
		return nil
	}
	var names []cobra.Completion
	repos, _ := cache.Repos() // without repositories nothing is completed
	for _, r := range repos {
		if strings.HasPrefix(string(r), typed) {
			names = append(names, string(r))
		}
	}
	return names
}

// ServedName is the listed name of a model: its repository, or else the name of its folder or
// file.
func ServedName(typed, path string) string {
	if path == Embedded {
		return path
	}
	if path != typed { // it was found in the cache
		if cache, err := HubCache(); err == nil {
			if repo, _, err := cache.Lookup(typed); err == nil {
				return string(repo)
			}
		}
	}
	return models.Name(path)
}
