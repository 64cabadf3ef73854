// The part of a kubelet that serves exec, with its own code for both protocols: for containers that are
// processes of this computer, each in namespaces of its own.
package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/cert"
	server "k8s.io/kubernetes/pkg/kubelet/cri/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// boxes is a directory with one folder for each pod: `pid`, its first process, and `environ`, a variable a line.
type boxes string

func (b boxes) ExecInContainer(name string, uid types.UID, container string, argv []string, in io.Reader,
	out, complaints io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize, timeout time.Duration) error {
	at := filepath.Join(string(b), name)
	pid, err := os.ReadFile(filepath.Join(at, "pid"))
	if err != nil {
		return fmt.Errorf("container not found (%q)", container)
	}
	environ, err := os.ReadFile(filepath.Join(at, "environ"))
	if err != nil {
		return err
	}
	if _, err := exec.LookPath(argv[0]); err != nil {
		return fmt.Errorf("exec: %q: executable file not found in $PATH: unknown", argv[0])
	}
	enter := append([]string{"--target", strings.TrimSpace(string(pid)), "--mount", "--pid", "--"}, argv...)
	command := exec.Command("nsenter", enter...)
	command.Env = strings.Split(strings.TrimSpace(string(environ)), "\n")
	command.Dir = "/"
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	command.Stdout, command.Stderr = out, complaints
	if in != nil {
		// Not command.Stdin: to wait for its end would be to wait for a client that has no half-close.
		pipe, err := command.StdinPipe()
		if err != nil {
			return err
		}
		go func() {
			io.Copy(pipe, in)
			pipe.Close()
		}()
	}
	err = command.Run()
	if ended, ok := err.(*exec.ExitError); ok {
		return utilexec.CodeExitError{Err: err, Code: ended.ExitCode()}
	}
	return err
}

func main() {
	at, address := boxes(os.Args[1]), os.Args[2]
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.ParseIP("127.0.0.1")}, nil)
	if err != nil {
		log.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("/exec/", func(w http.ResponseWriter, r *http.Request) {
		where := strings.Split(strings.TrimPrefix(r.URL.Path, "/exec/"), "/")
		options, err := server.NewOptions(r)
		if err != nil || len(where) < 3 {
			http.Error(w, fmt.Sprint(err, where), http.StatusBadRequest)
			return
		}
		server.ServeExec(w, r, at, where[0]+"_"+where[1], "", where[len(where)-1], r.URL.Query()["command"], options,
			time.Hour, time.Minute, []string{"v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"})
	})
	listener, err := tls.Listen("tcp", address, &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(listener, nil))
}
