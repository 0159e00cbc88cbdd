"""The official Python client against the cluster that KUBECONFIG names."""

import threading
import time
import unittest

from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException


def eventually(what, holds, seconds=20):
    """Polls until the condition holds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s: {what}")


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        config.load_kube_config()
        cls.core = client.CoreV1Api()
        cls.apps = client.AppsV1Api()

    def setUp(self):
        made = self.core.create_namespace({"metadata": {"generateName": "python-"}})
        self.namespace = made.metadata.name
        self.addCleanup(self.core.delete_namespace, self.namespace)

    def config_map(self, name, **data):
        return self.core.create_namespaced_config_map(self.namespace, {"metadata": {"name": name}, "data": data})

    def test_life_of_an_object(self):
        made = self.config_map("one", value="1")
        made.data["value"] = "2"
        self.core.replace_namespaced_config_map("one", self.namespace, made)
        patched = self.core.patch_namespaced_config_map("one", self.namespace, {"metadata": {"labels": {"a": "b"}}})
        self.assertEqual((patched.data, patched.metadata.labels), ({"value": "2"}, {"a": "b"}))
        listed = self.core.list_namespaced_config_map(self.namespace, label_selector="a=b")
        self.assertEqual([item.metadata.name for item in listed.items], ["one"])
        self.core.delete_namespaced_config_map("one", self.namespace)
        with self.assertRaises(ApiException) as refused:
            self.core.read_namespaced_config_map("one", self.namespace)
        self.assertEqual((refused.exception.status, refused.exception.reason), (404, "Not Found"))

    def test_conflict(self):
        first = self.config_map("one", value="1")
        self.core.patch_namespaced_config_map("one", self.namespace, {"data": {"value": "2"}})
        with self.assertRaises(ApiException) as refused:
            self.core.replace_namespaced_config_map("one", self.namespace, first)
        self.assertEqual(refused.exception.status, 409)

    def test_watch(self):
        seen = []

        def follow():
            for event in watch.Watch().stream(self.core.list_namespaced_config_map, self.namespace, timeout_seconds=20):
                if event["object"].metadata.name == "watched":
                    seen.append(event["type"])
                    if event["type"] == "DELETED":
                        return

        thread = threading.Thread(target=follow)
        thread.start()
        self.config_map("watched", value="1")
        eventually("the watch reports the object", lambda: seen)
        self.core.patch_namespaced_config_map("watched", self.namespace, {"data": {"value": "2"}})
        self.core.delete_namespaced_config_map("watched", self.namespace)
        thread.join(30)
        self.assertEqual(seen, ["ADDED", "MODIFIED", "DELETED"])

    def test_scale(self):
        labels = {"app": "web"}
        self.apps.create_namespaced_deployment(self.namespace, {
            "metadata": {"name": "web"},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}}})
        self.apps.patch_namespaced_deployment_scale("web", self.namespace, {"spec": {"replicas": 2}})
        self.assertEqual(self.apps.read_namespaced_deployment("web", self.namespace).spec.replicas, 2)
        pods = lambda: self.core.list_namespaced_pod(self.namespace, label_selector="app=web").items
        eventually("two pods are made", lambda: len(pods()) == 2)

    def test_dynamic(self):
        resources = dynamic.DynamicClient(client.ApiClient())
        maps = resources.resources.get(api_version="v1", kind="ConfigMap")
        maps.create(body={"metadata": {"name": "dynamic"}, "data": {"value": "1"}}, namespace=self.namespace)
        applied = maps.server_side_apply(
            body={"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dynamic"}, "data": {"other": "2"}},
            namespace=self.namespace, field_manager="python")
        self.assertEqual(dict(applied.data), {"value": "1", "other": "2"})


if __name__ == "__main__":
    unittest.main()
