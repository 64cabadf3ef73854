"""What the state directory records of a Slurm cluster. This is needed because Slurm reuses job ids."""

from pathlib import Path

from gpu_tenant.domain.errors import ProviderTrouble


class SlurmNotes:
    """The cluster's name, the marks of leases that were begun in it, and the jobs that were handed back.

    Each of these is the name of an empty file, so that nothing is lost when two processes write at once.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def exist(self) -> bool:
        """Whether a lease was ever begun."""
        return self._directory.exists()

    def begin(self, mark: str, *, cluster: str) -> None:
        """Note that a lease with that mark is being begun in that cluster. The first lease determines the cluster.

        Raises:
            ProviderTrouble: `check` refuses the cluster. The lease was not noted.
        """
        if not self._of("cluster"):
            self._note("cluster", cluster)
        self.check(cluster)
        self._note("begun", mark)

    def check(self, cluster: str) -> None:
        """Require that the leases are in that cluster, or that there are none.

        Raises:
            ProviderTrouble: the leases are in another cluster, so nothing may be concluded from what this one lists.
        """
        known = self._of("cluster")
        if known and cluster not in known:
            raise ProviderTrouble(
                f"the cluster {cluster} answers, and leases were begun in {', '.join(sorted(known))}",
                remedy="name that cluster under [slurm] again; if none of its leases lives any more: "
                f"`rm -r {self._directory / 'cluster'}`",
            )

    def check_ours(self, job: str, mark: str | None, *, lease: str) -> None:
        """Require that the job carries the lease's mark.

        It may carry another mark if this lease was not begun here but took the job over.

        Raises:
            ProviderTrouble: the id belongs to another job now, or somebody has changed the job's comment.
        """
        begun = {_lease(each) for each in self._of("begun")}
        if mark is None or (_lease(mark) != lease and lease in begun):
            raise ProviderTrouble(
                f"the job {job} does not carry the mark of {lease}, and was left alone",
                remedy=f"see `scontrol show job {job}` on the login node; if the job should end: `scancel {job}`",
            )

    def hand_back(self, job: str, mark: str | None) -> None:
        """Note that the job is no longer a box."""
        self._note("handed_back", f"{job}-{mark}")

    def shown(self, job: str, mark: str | None) -> bool:
        """Whether an ended job belongs to a deployment that began leases here, and was not handed back."""
        return self.is_here((mark or "").rpartition(":")[0]) and (
            f"{job}-{mark}" not in self._of("handed_back")
        )

    def is_here(self, deployment: str) -> bool:
        """Whether leases of that deployment, such as `gpu-tenant:0a1b2c`, were begun from here."""
        return deployment in {each.rpartition(":")[0] for each in self._of("begun")}

    def _note(self, kind: str, name: str) -> None:
        (self._directory / kind).mkdir(parents=True, exist_ok=True, mode=0o700)
        (self._directory / kind / name).touch()

    def _of(self, kind: str) -> set[str]:
        folder = self._directory / kind
        return {each.name for each in folder.iterdir()} if folder.exists() else set()


def _lease(mark: str) -> str:
    return mark.rpartition(":")[2]
