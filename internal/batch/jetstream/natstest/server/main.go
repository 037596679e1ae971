// Command server is a NATS server for tests. Its argument is a JSON object with the settings. It prints
// its port when it listens and ends when its standard input does. Without an argument it prints the path
// of its executable file.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// settings are those of natstest.Node.
type settings struct {
	Name        string
	Port, Route int      // 0: any free port
	Routes      []string // of the nodes of its cluster
	Dir         string
	Security    string // folder with certificates and users, which are made if need be; "": no security
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		path, err := os.Executable()
		if err == nil {
			fmt.Println(path)
		}
		return err
	}
	var n settings
	if err := json.Unmarshal([]byte(args[0]), &n); err != nil {
		return err
	}
	o := &server.Options{ServerName: n.Name, Host: "127.0.0.1", Port: cmp.Or(n.Port, server.RANDOM_PORT), NoSigs: true, JetStream: true, StoreDir: n.Dir}
	if len(n.Routes) > 0 {
		o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: n.Route}
	}
	for _, r := range n.Routes {
		u, err := url.Parse(r)
		if err != nil {
			return err
		}
		o.Routes = append(o.Routes, u)
	}
	if n.Security != "" {
		if err := secure(n.Security, o); err != nil {
			return err
		}
	}
	s, err := server.NewServer(o)
	if err != nil {
		return err
	}
	s.SetLoggerV2(fatal{}, false, false, false)
	s.Start()
	if !s.ReadyForConnections(patience) {
		return fmt.Errorf("%s cannot be reached", n.Name)
	}
	fmt.Println(s.Addr().(*net.TCPAddr).Port)
	_, _ = os.Stdin.Read(make([]byte, 1)) // ends when the parent does
	s.Shutdown()
	return nil
}

// patience is how long the server may take to start.
const patience = 5 * time.Minute

// fatal is a log that ends the process if the server cannot start, as when its port is in use.
type fatal struct{}

func (fatal) Noticef(string, ...any) {}
func (fatal) Warnf(string, ...any)   {}
func (fatal) Errorf(string, ...any)  {}
func (fatal) Debugf(string, ...any)  {}
func (fatal) Tracef(string, ...any)  {}
func (fatal) Fatalf(format string, v ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", v...)
	os.Exit(1)
}
