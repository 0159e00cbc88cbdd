package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// server is one API server with what it needs, each a process of ours.
type server struct {
	config    *rest.Config
	processes []*exec.Cmd
	folder    string
	took      time.Duration
}

func freePort() int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

func (s *server) spawn(name string, arguments ...string) error {
	command := exec.Command(name, arguments...)
	log, err := os.Create(filepath.Join(s.folder, filepath.Base(name)+".log"))
	if err != nil {
		return err
	}
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return err
	}
	s.processes = append(s.processes, command)
	return nil
}

func startServer(ctx context.Context, o options, side string) (*server, error) {
	folder, err := os.MkdirTemp("", "pintle-load-")
	if err != nil {
		return nil, err
	}
	s := &server{folder: folder}
	begin := time.Now()
	if side == "ours" {
		err = s.startOurs(o, &begin)
	} else {
		err = s.startUpstream(o, &begin)
	}
	if err == nil {
		err = s.ready(ctx)
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, s.lastWords())
		s.stop()
		return nil, err
	}
	s.took = time.Since(begin)
	return s, nil
}

func (s *server) startEtcd(o options) (string, error) {
	client, peer := freePort(), freePort()
	url := fmt.Sprintf("http://127.0.0.1:%d", client)
	peerURL := fmt.Sprintf("http://127.0.0.1:%d", peer)
	err := s.spawn(filepath.Join(o.upstreamBin, "etcd"), "--data-dir", filepath.Join(s.folder, "etcd"), "--listen-client-urls", url,
		"--advertise-client-urls", url, "--listen-peer-urls", peerURL, "--initial-advertise-peer-urls", peerURL,
		"--initial-cluster", "default="+peerURL, "--quota-backend-bytes", "8589934592")
	if err != nil {
		return "", err
	}
	for range 200 {
		if connection, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", client)); err == nil {
			connection.Close()
			return url, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return "", fmt.Errorf("etcd does not listen")
}

// startOurs starts Pintle's; begin is when its own process was started.
func (s *server) startOurs(o options, begin *time.Time) error {
	port, data := freePort(), filepath.Join(s.folder, "pintle")
	arguments := []string{"--log", "warn", "apiserver", "--data-dir", data, "--port", strconv.Itoa(port), "--service-cidr", "10.97.0.0/16"}
	if o.store == "etcd" {
		url, err := s.startEtcd(o)
		if err != nil {
			return err
		}
		arguments = append(arguments, "--etcd-servers", url)
	} else {
		arguments = append(arguments, "--storage", o.store)
	}
	*begin = time.Now()
	if err := s.spawn(o.pintle, arguments...); err != nil {
		return err
	}
	kubeconfig := filepath.Join(data, "kubeconfig")
	for range 3000 {
		if config, err := clientcmd.BuildConfigFromFlags("", kubeconfig); err == nil {
			s.config = config
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("no kubeconfig")
}

func (s *server) startUpstream(o options, begin *time.Time) error {
	url, err := s.startEtcd(o)
	if err != nil {
		return err
	}
	tokens, key := filepath.Join(s.folder, "tokens"), filepath.Join(s.folder, "sa.key")
	if err := os.WriteFile(tokens, []byte("load,load,load,system:masters\n"), 0o600); err != nil {
		return err
	}
	if out, err := exec.Command("openssl", "genrsa", "-out", key, "2048").CombinedOutput(); err != nil {
		return fmt.Errorf("openssl: %s", out)
	}
	*begin = time.Now()
	port := freePort()
	s.config = &rest.Config{Host: fmt.Sprintf("https://127.0.0.1:%d", port), BearerToken: "load", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	return s.spawn(filepath.Join(o.upstreamBin, "kube-apiserver"), "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port), "--etcd-servers="+url, "--service-cluster-ip-range=10.97.0.0/16", "--token-auth-file="+tokens,
		"--authorization-mode=Node,RBAC", "--endpoint-reconciler-type=none", "--cert-dir="+filepath.Join(s.folder, "certs"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+key, "--service-account-signing-key-file="+key)
}

func (s *server) ready(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return err
	}
	for range 3000 {
		if _, err := client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("not ready within 30 s")
}

// lastWords of its processes' logs.
func (s *server) lastWords() string {
	var words strings.Builder
	logs, _ := filepath.Glob(filepath.Join(s.folder, "*.log"))
	for _, log := range logs {
		text, _ := os.ReadFile(log)
		fmt.Fprintf(&words, "--- %s\n%s\n", filepath.Base(log), text[max(0, len(text)-2000):])
	}
	return words.String()
}

// stop asks its processes to end, and after a while makes them.
func (s *server) stop() {
	for i := len(s.processes) - 1; i >= 0; i-- {
		process := s.processes[i]
		_ = process.Process.Signal(syscall.SIGTERM)
		insist := time.AfterFunc(20*time.Second, func() { _ = process.Process.Kill() })
		_ = process.Wait()
		insist.Stop()
	}
	_ = os.RemoveAll(s.folder)
}

// cpu time of all its processes so far.
func (s *server) cpu() time.Duration {
	var ticks int64
	for _, process := range s.processes {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process.Process.Pid))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		user, _ := strconv.ParseInt(fields[11], 10, 64)
		system, _ := strconv.ParseInt(fields[12], 10, 64)
		ticks += user + system
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// memory that is resident, in MB, of all its processes.
func (s *server) memory() float64 {
	var kb float64
	for _, process := range s.processes {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", process.Process.Pid))
		for line := range strings.Lines(string(text)) {
			if value, found := strings.CutPrefix(line, "VmRSS:"); found {
				number, _ := strconv.ParseFloat(strings.Fields(value)[0], 64)
				kb += number
			}
		}
	}
	return kb / 1024
}
