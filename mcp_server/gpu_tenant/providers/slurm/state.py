"""What the state directory holds of a Slurm cluster: Slurm gives the ids of its jobs out again."""

from pathlib import Path

from gpu_tenant.domain.errors import ProviderTrouble


class SlurmNotes:
    """What the cluster is called, the marks of leases that were begun in it, and jobs handed back.

    Each is the name of an empty file, so that none is lost when two processes write.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def exist(self) -> bool:
        """Whether a lease was ever begun."""
        return self._directory.exists()

    def begin(self, mark: str, *, cluster: str) -> None:
        """A lease with that mark is being begun in that cluster: the first one settles which it is.

        Raises:
            ProviderTrouble: as `check`; nothing was noted.
        """
        if not self._of("cluster"):
            self._note("cluster", cluster)
        self.check(cluster)
        self._note("begun", mark)

    def check(self, cluster: str) -> None:
        """That is where the leases are, or there are none.

        Raises:
            ProviderTrouble: it is another one; nothing may be concluded from what it lists.
        """
        known = self._of("cluster")
        if known and cluster not in known:
            raise ProviderTrouble(
                f"the cluster {cluster} answers, and leases were begun in {', '.join(sorted(known))}",
                remedy="name that one under [slurm] again; when none of its leases lives any more: "
                f"`rm -r {self._directory / 'cluster'}`",
            )

    def check_ours(self, job: str, mark: str | None, *, lease: str) -> None:
        """The job carries the mark of that lease; only one that took it up may find another mark.

        Raises:
            ProviderTrouble: it does not: it is another job by now, or somebody has changed its comment.
        """
        begun = {_lease(each) for each in self._of("begun")}
        if mark is None or (_lease(mark) != lease and lease in begun):
            raise ProviderTrouble(
                f"the job {job} does not carry the mark of {lease}, and was left alone",
                remedy=f"see `scontrol show job {job}` on the login node; if it is to end: `scancel {job}`",
            )

    def hand_back(self, job: str, mark: str | None) -> None:
        """That job is no box any more."""
        self._note("handed_back", f"{job}-{mark}")

    def shown(self, job: str, mark: str | None) -> bool:
        """Whether a job that has ended is of this deployment, and was not handed back."""
        return self.is_here((mark or "").rpartition(":")[0]) and (
            f"{job}-{mark}" not in self._of("handed_back")
        )

    def is_here(self, deployment: str) -> bool:
        """Whether leases of that deployment, as `gpu-tenant:0a1b2c`, were begun from here."""
        return deployment in {each.rpartition(":")[0] for each in self._of("begun")}

    def _note(self, kind: str, name: str) -> None:
        (self._directory / kind).mkdir(parents=True, exist_ok=True, mode=0o700)
        (self._directory / kind / name).touch()

    def _of(self, kind: str) -> set[str]:
        folder = self._directory / kind
        return {each.name for each in folder.iterdir()} if folder.exists() else set()


def _lease(mark: str) -> str:
    return mark.rpartition(":")[2]
