"""Nothing is left of a test at the cluster of this worker."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from kube.cluster import Cluster, eventually


@pytest.fixture(autouse=True)
def empty(cluster: Cluster) -> Iterator[None]:
    """Nothing is left of a test."""
    yield
    cluster.batch.delete_collection_namespaced_job(
        "default", propagation_policy="Background", grace_period_seconds=0
    )
    cluster.core.delete_collection_namespaced_pod("default", grace_period_seconds=0)
    assert eventually(lambda: not cluster.core.list_namespaced_pod("default").items)
    cluster.core.delete_collection_namespaced_persistent_volume_claim("default")
    claims = cluster.core.list_namespaced_persistent_volume_claim
    assert eventually(lambda: not claims("default").items)
    kept = [disk.spec.host_path.path for disk in cluster.core.list_persistent_volume().items]
    cluster.core.delete_collection_persistent_volume()
    assert eventually(lambda: not cluster.core.list_persistent_volume().items)
    for path in kept:
        if Path(path).parent.name == "hostpath_pv":  # the provisioner's own; other disks are none
            shutil.rmtree(path, ignore_errors=True)
