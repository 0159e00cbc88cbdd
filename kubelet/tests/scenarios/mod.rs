//! What a user sees of pods, one scenario a function.

mod timing;

use std::time::{Duration, Instant};

use crate::lab::{Lab, NODE, wait};

const SECONDS: fn(u64) -> Duration = Duration::from_secs;

/// A pod of one busybox container on the node.
fn pod(name: &str, command: &str, of_pod: &str, of_container: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: {name}}}}}\nspec:\n  nodeName: {NODE}\n  \
         terminationGracePeriodSeconds: 1\n  {of_pod}\n  containers:\n  - name: c\n    image: busybox:1\n    \
         command: [sh, -c, {command:?}]\n    {of_container}\n"
    )
}

fn delete(lab: &Lab, name: &str) {
    lab.kubectl(&["delete", "pod", name, "--wait=false"]);
    lab.wait_gone(&format!("pod/{name}"), SECONDS(30));
}

/// The text of a container's log, without the runtime's prefixes.
fn log(lab: &Lab, pod: &str, container: &str) -> String {
    let uid = lab.field(&format!("pod/{pod}"), ".metadata.uid");
    let path = lab.dir.join(format!("pod-logs/default_{pod}_{uid}/{container}/0.log"));
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|l| l.splitn(4, ' ').nth(3)).map(|l| format!("{l}\n")).collect()
}

fn has_event(lab: &Lab, pod: &str, reason: &str, message: &str) -> bool {
    let selector = format!("involvedObject.name={pod},reason={reason}");
    let path = "jsonpath={range .items[*]}{.message}{\"\\n\"}{end}";
    let events = lab.kubectl(&["get", "events", "--field-selector", &selector, "-o", path]);
    events.lines().any(|line| line.contains(message))
}

fn wait_event(lab: &Lab, pod: &str, reason: &str, message: &str) {
    wait(&format!("event {reason} {message:?} of {pod}"), SECONDS(20), || has_event(lab, pod, reason, message));
}

const CONTAINER: &str = ".status.containerStatuses[0]";

/// A pod runs, shows everything, and is gone after its deletion.
pub fn runs_and_ends(lab: &Lab) {
    lab.create(&pod("one", "echo hello; sleep 1000", "", ""));
    lab.wait_field("pod/one", ".status.phase", "Running", SECONDS(20));
    assert!(lab.field("pod/one", ".status.podIP").starts_with("10.231.0."));
    assert_eq!(lab.field("pod/one", ".status.hostIP"), "172.31.99.1");
    assert_eq!(lab.field("pod/one", ".status.qosClass"), "BestEffort");
    assert_eq!(lab.field("pod/one", ".status.conditions[*].status"), "True True True True True");
    assert!(lab.field("pod/one", &format!("{CONTAINER}.containerID")).starts_with("containerd://"));
    for (reason, message) in [
        ("Pulled", "Container image \"busybox:1\" already present on machine"),
        ("Created", "Container created"),
        ("Started", "Container started"),
    ] {
        wait_event(lab, "one", reason, message);
    }
    assert_eq!(log(lab, "one", "c"), "hello\n");
    let uid = lab.field("pod/one", ".metadata.uid");
    delete(lab, "one");
    wait_event(lab, "one", "Killing", "Stopping container c");
    wait("the pod's folder to go", SECONDS(10), || !lab.dir.join("kubelet/pods").join(&uid).exists());
}

/// Environment from every source, volumes of every kind, modes, ownership, sub-paths, live updates.
pub fn environment_and_volumes(lab: &Lab) {
    lab.create(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\ndata: {k: v, other: w}\n---\n\
         apiVersion: v1\nkind: Secret\nmetadata: {name: sec}\nstringData: {pass: hidden}\n",
    );
    let volumes = "serviceAccountName: default\n  securityContext: {fsGroup: 77}\n  volumes:\n  - {name: e, emptyDir: {}}\n  \
        - {name: m, emptyDir: {medium: Memory, sizeLimit: 1Mi}}\n  - {name: cm, configMap: {name: cm}}\n  \
        - {name: s, secret: {secretName: sec, defaultMode: 0400}}\n  - {name: h, hostPath: {path: /etc, type: Directory}}\n  \
        - {name: d, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}\n  \
        - {name: p, projected: {sources: [{configMap: {name: cm, items: [{key: k, path: a/b}]}}, \
          {serviceAccountToken: {path: token}}]}}\n  \
        - {name: opt, configMap: {name: absent, optional: true}}";
    let container = "env: [{name: A, value: '1'}, {name: B, value: '$(A)2'}, \
        {name: C, valueFrom: {configMapKeyRef: {name: cm, key: k}}}, {name: D, valueFrom: {secretKeyRef: {name: sec, key: pass}}}, \
        {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}, \
        {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}]\n    \
        envFrom: [{prefix: X_, configMapRef: {name: cm}}]\n    resources: {limits: {cpu: 250m, memory: 32Mi}}\n    \
        volumeMounts: [{name: e, mountPath: /e}, {name: m, mountPath: /m}, {name: cm, mountPath: /cm}, {name: s, mountPath: /s}, \
        {name: h, mountPath: /h, readOnly: true}, {name: d, mountPath: /d}, {name: p, mountPath: /p}, \
        {name: cm, mountPath: /sub, subPath: other}, {name: e, mountPath: /esub, subPath: x/y}, {name: opt, mountPath: /opt}]";
    let script = "echo env $A $B $C $D $NAME $CPU $X_k; [ $IP ] && echo ip; cat /cm/k /s/pass /sub /p/a/b; echo; cat /d/labels; \
        echo; stat -c %a /s/..data/pass; stat -c %g /e; touch /esub/f && ls /e/x/y; mount | grep -c 'tmpfs on /m '; \
        [ -s /p/token ] && echo token; grep -c two /etc/hosts; ls /opt | wc -l; echo x 2>/dev/null >/h/no || echo ro; \
        while sleep 0.2; do [ $(cat /cm/k) = new ] && echo updated && break; done; sleep 1000";
    lab.create(&pod("two", script, volumes, container));
    lab.wait_field("pod/two", ".status.phase", "Running", SECONDS(20));
    let want = "env 1 12 v hidden two 250 v\nip\nvhiddenwv\napp=\"two\"\n440\n77\nf\n1\ntoken\n1\n0\nro\n";
    wait("the script", SECONDS(10), || log(lab, "two", "c").lines().count() >= want.lines().count());
    assert_eq!(log(lab, "two", "c"), want);
    lab.kubectl(&["patch", "configmap", "cm", "-p", r#"{"data":{"k":"new"}}"#]);
    wait("the update of the volume", SECONDS(20), || log(lab, "two", "c").ends_with("updated\n"));
    assert_eq!(lab.field("pod/two", ".status.qosClass"), "Guaranteed");
    delete(lab, "two");
}

/// Succeeded and Failed, exit codes, termination messages.
pub fn phases_of_jobs(lab: &Lab) {
    let never = "restartPolicy: Never";
    lab.create(&pod("good", "echo -n done > /dev/termination-log", never, ""));
    lab.create(&pod("bad", "echo why; exit 3", never, "terminationMessagePolicy: FallbackToLogsOnError"));
    lab.wait_field("pod/good", ".status.phase", "Succeeded", SECONDS(20));
    lab.wait_field("pod/bad", ".status.phase", "Failed", SECONDS(20));
    let terminated = format!("{CONTAINER}.state.terminated");
    let of = |pod: &str, field: &str| lab.field(&format!("pod/{pod}"), &format!("{terminated}.{field}"));
    assert_eq!((of("good", "reason"), of("good", "message")), ("Completed".to_owned(), "done".to_owned()));
    assert_eq!((of("bad", "reason"), of("bad", "exitCode")), ("Error".to_owned(), "3".to_owned()));
    assert_eq!(of("bad", "message"), "why\n");
    assert_eq!(lab.field("pod/good", ".status.conditions[?(@.type=='Ready')].reason"), "PodCompleted");
    delete(lab, "good");
    delete(lab, "bad");
}

/// Init containers run in order before the rest; a sidecar starts before and ends after.
pub fn init_containers_and_sidecars(lab: &Lab) {
    let init = "volumes: [{name: v, emptyDir: {}}]\n  initContainers:\n  \
        - {name: i1, image: 'busybox:1', command: [sh, -c, 'echo 1 >> /v/f'], volumeMounts: [{name: v, mountPath: /v}]}\n  \
        - {name: side, image: 'busybox:1', restartPolicy: Always, command: [sh, -c, 'echo s >> /v/f; trap exit TERM; sleep 1000 & wait'], volumeMounts: [{name: v, mountPath: /v}]}\n  \
        - {name: i2, image: 'busybox:1', command: [sh, -c, 'sleep 0.5; echo 2 >> /v/f'], volumeMounts: [{name: v, mountPath: /v}]}";
    let container = "volumeMounts: [{name: v, mountPath: /v}]";
    lab.create(&pod("init", "cat /v/f; sleep 3", &format!("restartPolicy: Never\n  {init}"), container));
    lab.wait_field("pod/init", ".status.phase", "Running", SECONDS(30));
    assert_eq!(lab.field("pod/init", ".status.initContainerStatuses[*].ready"), "true true true");
    lab.wait_field("pod/init", ".status.phase", "Succeeded", SECONDS(30));
    assert_eq!(log(lab, "init", "c"), "1\ns\n2\n");
    delete(lab, "init");
}

/// A crashing container is restarted at once, then after a back-off.
pub fn crash_loop(lab: &Lab) {
    lab.create(&pod("crash", "exit 1", "", ""));
    lab.wait_field("pod/crash", &format!("{CONTAINER}.state.waiting.reason"), "CrashLoopBackOff", SECONDS(20));
    assert_eq!(lab.field("pod/crash", &format!("{CONTAINER}.restartCount")), "1");
    assert_eq!(lab.field("pod/crash", &format!("{CONTAINER}.lastState.terminated.exitCode")), "1");
    let message = lab.field("pod/crash", &format!("{CONTAINER}.state.waiting.message"));
    assert!(message.starts_with("back-off 10s restarting failed container=c pod=crash_default("), "{message}");
    wait_event(lab, "crash", "BackOff", "Back-off restarting failed container c in pod crash_default(");
    lab.wait_field("pod/crash", &format!("{CONTAINER}.restartCount"), "2", SECONDS(20));
    delete(lab, "crash");
}

/// Readiness follows its probe, a failed liveness probe restarts, a startup probe holds both back.
pub fn probes(lab: &Lab) {
    let http = "ports: [{name: web, containerPort: 8080}]\n    \
        readinessProbe: {httpGet: {path: /ok, port: web}, periodSeconds: 1}\n    \
        livenessProbe: {exec: {command: [test, '!', -e, /tmp/dead]}, periodSeconds: 1, failureThreshold: 1}\n    \
        startupProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}";
    let script = "mkdir /w; httpd -p 8080 -h /w; sleep 2; echo > /w/ok; \
        while [ ! -e /tmp/go ]; do sleep 0.2; done; touch /tmp/dead; sleep 1000";
    lab.create(&pod("probed", script, "", http));
    lab.wait_field("pod/probed", &format!("{CONTAINER}.started"), "true", SECONDS(20));
    lab.wait_field("pod/probed", ".status.conditions[?(@.type=='Ready')].status", "True", SECONDS(20));
    wait_event(lab, "probed", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 404");
    let id = lab.field("pod/probed", &format!("{CONTAINER}.containerID"));
    exec(lab, &id, "touch /tmp/go");
    lab.wait_field("pod/probed", &format!("{CONTAINER}.restartCount"), "1", SECONDS(20));
    wait_event(lab, "probed", "Killing", "Container c failed liveness probe, will be restarted");
    delete(lab, "probed");
}

/// Runs a command in a container by the runtime alone.
fn exec(lab: &Lab, id: &str, command: &str) {
    let id = id.trim_start_matches("containerd://");
    let mut ctr = std::process::Command::new("ctr");
    ctr.args(["-a", &lab.socket(), "-n", "k8s.io", "tasks", "exec", "--exec-id", "x", id, "sh", "-c", command]);
    crate::lab::run(&mut ctr);
}

/// TERM and preStop are given their time; a shorter grace period cuts it off.
pub fn graceful_termination(lab: &Lab) {
    let hook = "lifecycle: {preStop: {exec: {command: [sh, -c, 'echo hook >> /proc/1/fd/1']}}}";
    let spec = pod("slow", "trap 'echo term; sleep 2; echo bye; exit 0' TERM; sleep 1000 & wait", "", hook);
    let spec = spec.replace("terminationGracePeriodSeconds: 1", "terminationGracePeriodSeconds: 20");
    lab.create(&spec);
    lab.wait_field("pod/slow", ".status.phase", "Running", SECONDS(20));
    lab.kubectl(&["delete", "pod", "slow", "--wait=false"]);
    wait("the log", SECONDS(10), || {
        log(lab, "slow", "c") == "hook\nterm\nbye\n" || lab.try_kubectl(&["get", "pod", "slow"], "").is_err()
    });
    lab.wait_gone("pod/slow", SECONDS(10));
    let deaf = pod("deaf", "trap '' TERM; while :; do sleep 1; done", "", "");
    lab.create(&deaf.replace("terminationGracePeriodSeconds: 1", "terminationGracePeriodSeconds: 100"));
    lab.wait_field("pod/deaf", ".status.phase", "Running", SECONDS(20));
    lab.kubectl(&["delete", "pod", "deaf", "--wait=false"]);
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    lab.kubectl(&["delete", "pod", "deaf", "--grace-period=1", "--wait=false"]);
    lab.wait_gone("pod/deaf", SECONDS(20));
    assert!(begun.elapsed() < SECONDS(15));
}

/// Images that cannot be had.
pub fn image_errors(lab: &Lab) {
    let with = |name: &str, image: &str, policy: &str| {
        pod(name, "true", "", &format!("imagePullPolicy: {policy}")).replace("busybox:1", image)
    };
    lab.create(&with("never", "localhost/absent:1", "Never"));
    lab.create(&with("pull", "127.0.0.1:1/absent:1", "IfNotPresent"));
    lab.create(&with("name", "Not_A_Name", "IfNotPresent"));
    let reason = format!("{CONTAINER}.state.waiting.reason");
    lab.wait_field("pod/never", &reason, "ErrImageNeverPull", SECONDS(20));
    lab.wait_field("pod/name", &reason, "InvalidImageName", SECONDS(20));
    lab.wait_field("pod/pull", &reason, "ImagePullBackOff", SECONDS(20));
    let message = lab.field("pod/pull", &format!("{CONTAINER}.state.waiting.message"));
    assert!(message.starts_with("Back-off pulling image \"127.0.0.1:1/absent:1\": ErrImagePull: "), "{message}");
    wait_event(lab, "pull", "Failed", "Failed to pull image \"127.0.0.1:1/absent:1\": ");
    for name in ["never", "pull", "name"] {
        delete(lab, name);
    }
}

/// References to nothing: the pod waits, says why, and goes on once the object is there.
pub fn configuration_errors(lab: &Lab) {
    let env = "env: [{name: A, valueFrom: {configMapKeyRef: {name: late, key: k}}}]";
    lab.create(&pod("env", "echo $A; sleep 1000", "", env));
    let reason = format!("{CONTAINER}.state.waiting.reason");
    lab.wait_field("pod/env", &reason, "CreateContainerConfigError", SECONDS(20));
    assert_eq!(lab.field("pod/env", &format!("{CONTAINER}.state.waiting.message")), "configmap \"late\" not found");
    let volume = "volumes: [{name: v, configMap: {name: late}}]";
    lab.create(&pod("vol", "cat /v/k; sleep 1000", volume, "volumeMounts: [{name: v, mountPath: /v}]"));
    wait_event(lab, "vol", "FailedMount", "MountVolume.SetUp failed for volume \"v\" : configmap \"late\" not found");
    lab.create("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: late}\ndata: {k: here}\n");
    lab.wait_field("pod/env", ".status.phase", "Running", SECONDS(20));
    lab.wait_field("pod/vol", ".status.phase", "Running", SECONDS(20));
    delete(lab, "env");
    delete(lab, "vol");
}

/// The node ends what runs too long and refuses what does not fit.
pub fn deadline_and_admission(lab: &Lab) {
    lab.create(&pod("late", "sleep 1000", "activeDeadlineSeconds: 2", ""));
    lab.create(&pod("big", "sleep 1000", "", "resources: {requests: {cpu: '1000'}}"));
    lab.create(&pod("other", "sleep 1000", "nodeSelector: {no: such}", ""));
    lab.wait_field("pod/late", ".status.reason", "DeadlineExceeded", SECONDS(20));
    lab.wait_field("pod/late", ".status.phase", "Failed", SECONDS(20));
    lab.wait_field("pod/big", ".status.reason", "OutOfcpu", SECONDS(20));
    lab.wait_field("pod/big", ".status.phase", "Failed", SECONDS(20));
    lab.wait_field("pod/other", ".status.reason", "NodeAffinity", SECONDS(20));
    for name in ["late", "big", "other"] {
        delete(lab, name);
    }
}

/// Users, capabilities and namespaces as asked for; ports of the host; the host's network.
pub fn security_and_network(lab: &Lab) {
    let context = "securityContext: {runAsUser: 1000, runAsGroup: 2000, readOnlyRootFilesystem: true, \
        allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}";
    let of_pod = "securityContext: {supplementalGroups: [3000], sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: '99'}]}";
    let script = "id -u; id -G; touch /x 2>/dev/null || echo ro; grep -E 'NoNewPrivs|CapEff' /proc/self/status; \
        cat /proc/sys/net/ipv4/ip_unprivileged_port_start; sleep 1000";
    lab.create(&pod("strict", script, of_pod, context));
    lab.wait_field("pod/strict", ".status.phase", "Running", SECONDS(20));
    let want = "1000\n2000 3000\nro\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n99\n";
    wait("the script", SECONDS(10), || log(lab, "strict", "c").lines().count() >= want.lines().count());
    assert_eq!(log(lab, "strict", "c"), want);
    let shared = "shareProcessNamespace: true\n  hostname: named\n  subdomain: sub";
    lab.create(&pod(
        "shared",
        "hostname; ps | grep -c '[p]ause'; grep -c named.sub.default.svc.cluster.local /etc/hosts; sleep 1000",
        shared,
        "",
    ));
    lab.create(&pod("host", "hostname; cat /etc/hosts | head -1; sleep 1000", "hostNetwork: true", ""));
    let root = "mkdir /w; echo served > /w/index.html; httpd -f -p 80 -h /w";
    lab.create(&pod("port", root, "", "ports: [{containerPort: 80, hostPort: 18080}]"));
    for name in ["shared", "host", "port"] {
        lab.wait_field(&format!("pod/{name}"), ".status.phase", "Running", SECONDS(20));
    }
    wait("the scripts", SECONDS(10), || {
        log(lab, "host", "c").lines().count() == 2 && log(lab, "shared", "c").lines().count() == 3
    });
    assert_eq!(log(lab, "shared", "c"), "named\n1\n1\n");
    assert!(log(lab, "host", "c").ends_with("# Kubernetes-managed hosts file (host network).\n"));
    assert_eq!(lab.field("pod/host", ".status.podIP"), "172.31.99.1");
    wait("the host port", SECONDS(10), || {
        let fetched =
            std::process::Command::new("busybox").args(["wget", "-qO-", "http://172.31.99.1:18080/"]).output();
        fetched.is_ok_and(|o| o.stdout == b"served\n")
    });
    for name in ["strict", "shared", "host", "port"] {
        delete(lab, name);
    }
}

/// A sandbox that dies is replaced, and its containers are started again in the new one.
pub fn sandbox_lost(lab: &Lab) {
    lab.create(&pod("lost", "sleep 1000", "", ""));
    lab.wait_field("pod/lost", ".status.phase", "Running", SECONDS(20));
    let address = lab.field("pod/lost", ".status.podIP");
    crate::lab::run(std::process::Command::new("sh").args(["-c", "kill -9 $(pgrep -x pause)"]));
    lab.wait_field("pod/lost", &format!("{CONTAINER}.restartCount"), "1", SECONDS(30));
    lab.wait_field("pod/lost", ".status.conditions[?(@.type=='Ready')].status", "True", SECONDS(20));
    assert_ne!(lab.field("pod/lost", ".status.podIP"), address);
    wait_event(lab, "lost", "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.");
    delete(lab, "lost");
}

/// kubectl through API server and node: logs, exec, an ephemeral container, usage.
pub fn logs_and_exec(lab: &Lab) {
    lab.create(&pod("talk", "echo spoken; exec sleep 1000", "", ""));
    lab.wait_field("pod/talk", ".status.phase", "Running", SECONDS(20));
    wait("the log", SECONDS(10), || lab.try_kubectl(&["logs", "talk"], "").as_deref() == Ok("spoken\n"));
    assert_eq!(lab.kubectl(&["exec", "talk", "--", "sh", "-c", "hostname; cat"]), "talk\n");
    assert_eq!(lab.try_kubectl(&["exec", "-i", "talk", "--", "cat"], "through").as_deref(), Ok("through"));
    let code = lab.try_kubectl(&["exec", "talk", "--", "sh", "-c", "exit 7"], "").unwrap_err();
    assert!(code.contains("exit code 7"), "{code}");
    let ephemeral = r#"{"spec":{"ephemeralContainers":[{"name":"dbg","image":"busybox:1","targetContainerName":"c",
        "command":["sh","-c","ps | grep -c 'sleep 1000'; sleep 1000"]}]}}"#;
    lab.kubectl(&["patch", "pod", "talk", "--subresource=ephemeralcontainers", "-p", ephemeral]);
    let started = ".status.ephemeralContainerStatuses[0].state.running.startedAt";
    wait("the ephemeral container", SECONDS(20), || !lab.field("pod/talk", started).is_empty());
    wait("its log", SECONDS(10), || {
        lab.try_kubectl(&["logs", "talk", "-c", "dbg"], "").is_ok_and(|l| !l.starts_with('0') && !l.is_empty())
    });
    let stats = lab.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy/stats/summary")]);
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    let pods = stats["pods"].as_array().unwrap();
    let talk = pods.iter().find(|p| p["podRef"]["name"] == "talk").unwrap();
    assert!(talk["containers"][0]["memory"]["workingSetBytes"].as_u64().is_some_and(|b| b > 0), "{talk}");
    delete(lab, "talk");
}

/// Pods that are deleted while they are being started leave nothing behind.
pub fn deleted_while_starting(lab: &Lab) {
    for (n, delay) in [0, 50, 100, 150, 200, 300].into_iter().enumerate() {
        let name = format!("brief-{n}");
        lab.create(&pod(&name, "sleep 1000", "", ""));
        std::thread::sleep(Duration::from_millis(delay));
        let force: &[&str] = if n == 4 { &["--force", "--grace-period=0"] } else { &[] };
        lab.kubectl(&[&["delete", "pod", &name, "--wait=false"], force].concat());
    }
    wait("the pods to go", SECONDS(20), || lab.kubectl(&["get", "pods", "-o", "name"]).is_empty());
    wait("containers, folders and control groups to go", SECONDS(20), || {
        let mut list = std::process::Command::new("ctr");
        list.args(["-a", &lab.socket(), "-n", "k8s.io", "containers", "ls", "-q"]);
        let empty = |dir: &std::path::Path| std::fs::read_dir(dir).is_ok_and(|mut d| d.next().is_none());
        let group = crate::confined::group();
        let groups = format!("find /sys/fs/cgroup -path '*/{group}/kubepods/*' -name 'pod*-*'");
        let groups = std::process::Command::new("sh").args(["-c", &groups]).output().unwrap();
        list.output().is_ok_and(|o| o.stdout.is_empty())
            && empty(&lab.dir.join("kubelet/pods"))
            && empty(&lab.dir.join("pod-logs"))
            && groups.stdout.is_empty()
    });
}

/// A manifest in the folder runs, is shown by a mirror, and goes with its file.
pub fn static_pods(lab: &Lab) {
    let dir = lab.dir.join("manifests");
    std::fs::create_dir_all(&dir).unwrap();
    let manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: fixed}\nspec:\n  terminationGracePeriodSeconds: 1\n  \
        containers: [{name: c, image: 'busybox:1', command: [sleep, '1000']}]\n";
    std::fs::write(dir.join("fixed.yaml"), manifest).unwrap();
    let mirror = format!("pod/fixed-{NODE}");
    lab.wait_field(&mirror, ".status.phase", "Running", SECONDS(30));
    let uid = lab.field(&mirror, ".metadata.uid");
    lab.kubectl(&["delete", &mirror, "--wait=false"]);
    wait("the mirror to come back", SECONDS(20), || {
        let now = lab.field(&mirror, ".metadata.uid");
        !now.is_empty() && now != uid
    });
    lab.wait_field(&mirror, ".status.phase", "Running", SECONDS(20));
    std::fs::remove_file(dir.join("fixed.yaml")).unwrap();
    lab.wait_gone(&mirror, SECONDS(20));
}

/// How much longer a pod takes than the runtime alone for the same steps, one at a time; bounded loosely, as the machine
/// may be busy.
pub fn latency(lab: &Lab) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (mut pods, mut bare) = (Vec::new(), Vec::new());
    for n in 0..7 {
        pods.push(runtime.block_on(timing::pod(lab, &format!("quick-{n}"))));
        bare.push(runtime.block_on(timing::bare(lab, &format!("bare-{n}"))));
        lab.kubectl(&["delete", "pod", &format!("quick-{n}"), "--wait=false"]);
    }
    pods.sort();
    bare.sort();
    let (pod, bare) = (pods[pods.len() / 2], bare[bare.len() / 2]);
    println!("create to Running: median {pod:?} ({pods:?}); the runtime alone: {bare:?}");
    assert!(pod < bare + SECONDS(2));
}

/// A kubelet that is started again keeps what runs, and ends what was deleted meanwhile.
pub fn adoption<N>(lab: &Lab, node: N, start: impl FnOnce() -> N) -> N {
    lab.create(&pod("stays", "sleep 1000", "", ""));
    lab.create(&pod("goes", "sleep 1000", "", ""));
    lab.wait_field("pod/stays", ".status.phase", "Running", SECONDS(20));
    lab.wait_field("pod/goes", ".status.phase", "Running", SECONDS(20));
    let before = lab.field("pod/stays", &format!("{CONTAINER}.containerID"));
    let orphan = lab.field("pod/goes", ".metadata.uid");
    drop(node);
    lab.kubectl(&["delete", "pod", "goes", "--force", "--grace-period=0"]);
    let node = start();
    wait("the orphan to go", SECONDS(30), || !lab.dir.join("kubelet/pods").join(&orphan).exists());
    assert_eq!(lab.field("pod/stays", &format!("{CONTAINER}.containerID")), before);
    assert_eq!(lab.field("pod/stays", &format!("{CONTAINER}.restartCount")), "0");
    let mut list = std::process::Command::new("ctr");
    list.args(["-a", &lab.socket(), "-n", "k8s.io", "containers", "ls", "-q"]);
    let listed = String::from_utf8(list.output().unwrap().stdout).unwrap();
    assert_eq!(listed.lines().count(), 2, "one sandbox and one container: {listed}");
    runtime_restart(lab, &before);
    delete(lab, "stays");
    node
}

/// containerd is killed and started again: containers keep running, new pods run.
fn runtime_restart(lab: &Lab, before: &str) {
    let pid = std::fs::read_to_string(lab.dir.join("containerd.pid")).unwrap();
    crate::lab::run(std::process::Command::new("kill").args(["-9", pid.trim()]));
    std::thread::sleep(SECONDS(2));
    lab.start_containerd();
    lab.create(&pod("after", "sleep 1000", "", ""));
    lab.wait_field("pod/after", ".status.phase", "Running", SECONDS(30));
    assert_eq!(lab.field("pod/stays", &format!("{CONTAINER}.containerID")), before);
    assert_eq!(lab.field("pod/stays", &format!("{CONTAINER}.restartCount")), "0");
    delete(lab, "after");
}
