package main

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

	"github.com/foretoken/foretoken/internal/hub"
)

// firstSet is the value of the first of the variables that is set, or "".
func firstSet(variables ...string) string {
	for _, v := range variables {
		if value := os.Getenv(v); value != "" {
			return value
		}
	}
	return ""
}

// hubHome is the folder in which the hub's programs keep what is theirs.
func hubHome() (string, error) {
	if dir := os.Getenv("HF_HOME"); dir != "" {
		return expandHome(dir)
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

// hubCache is the cache that the hub's programs share.
func hubCache() (hub.Cache, error) {
	if dir := firstSet("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"); dir != "" {
		dir, err := expandHome(dir)
		return hub.Cache(dir), err
	}
	home, err := hubHome()
	return hub.Cache(filepath.Join(home, "hub")), err
}

// expandHome replaces ~ at the beginning of a folder, which no shell has done inside of a
// variable.
func expandHome(dir string) (string, error) {
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
	file, err := expandHome(file)
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the token for the hub: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// newHubClient is a client as the environment says.
func newHubClient(parallel int) (*hub.Client, error) {
	cache, err := hubCache()
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

// resolveModel is the folder or file that a name on the command line stands for: one that
// is there, or that of a repository in the hub's cache. The network is not asked.
func resolveModel(name string) (string, error) {
	if name == embeddedName {
		return name, nil
	}
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		return name, nil // whatever else is wrong with it is better said by who opens it
	}
	if _, _, err := hub.ParseName(name); err != nil {
		return "", fmt.Errorf("model %s: no such folder; want a folder with config.json, tokenizer.json and *.safetensors files", name)
	}
	cache, err := hubCache()
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
		return "", fmt.Errorf("model %s: no such folder, and no such model in the cache: %s, foretoken list shows the cached models (%w)", name, remedy, err)
	}
	return path, err
}

// completeModelName completes what --model takes: the embedded model, one in the cache, or
// where neither fits a folder or file.
func completeModelName(typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names := cachedNames(typed)
	if strings.HasPrefix(embeddedName, typed) {
		names = append(names, embeddedName)
	}
	return names, cobra.ShellCompDirectiveDefault
}

// cachedNames are the models in the cache whose names begin with what is typed.
func cachedNames(typed string) []cobra.Completion {
	cache, err := hubCache()
	if err != nil {
		return nil
	}
	var names []cobra.Completion
	repos, _ := cache.Repos() // none can be completed where none can be read
	for _, r := range repos {
		if strings.HasPrefix(string(r), typed) {
			names = append(names, string(r))
		}
	}
	return names
}
