"""What a person pastes from a console means one address, or is refused in a sentence."""

import pytest

from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.leases.pasted_address import address_of


@pytest.mark.parametrize(
    ("pasted", "target"),
    [
        ("root@10.0.0.4", "root@10.0.0.4"),
        ("root@10.0.0.4:2222", "root@10.0.0.4:2222"),
        ("lab", "lab"),
        ("  root@host \n", "root@host"),
        ("ssh -p 38076 root@connect.example.com", "root@connect.example.com:38076"),
        ("$ ssh -p38076 root@connect.example.com", "root@connect.example.com:38076"),
        ("ssh root@connect.example.com -p 38076", "root@connect.example.com:38076"),
        ("ssh -l root -p 22022 host", "root@host:22022"),
        ("ssh -CNg -L 6006:127.0.0.1:6006 root@host -p 38076", "root@host:38076"),
        ("ssh -o ConnectTimeout=5 root@host", "root@host"),
        ("ssh root@host nvidia-smi", "root@host"),
        ("ssh://root@host:2222", "root@host:2222"),
        ("ssh://host", "host"),
        ("root@[2001:db8::7]:2222", "root@[2001:db8::7]:2222"),
    ],
)
def test_an_address_or_a_consoles_ssh_command_means_one_machine(pasted: str, target: str) -> None:
    assert address_of(pasted).target == target


@pytest.mark.parametrize(
    ("pasted", "why"),
    [
        ("", "no machine"),
        ("ssh", "no host"),
        ("ssh -p 22", "no host"),
        ("ssh -p twenty root@host", "'twenty' is no port"),
        ("ssh -i ~/key root@host", "-i belongs in an alias"),
        ("ssh -J gate root@host", "-J belongs in an alias"),
        ("ssh --help", "--help is not understood"),
        ("ssh://root:secret@host", "password has no place"),
        ("root@host extra", "more than one word"),
        ("-oProxyCommand=x", "more than one word"),
        ("ssh 'root@host", "No closing quotation"),
    ],
)
def test_what_means_no_machine_is_refused_with_the_forms_that_do(pasted: str, why: str) -> None:
    with pytest.raises(BadRequest, match=why) as refused:
        address_of(pasted)

    assert "user@host[:port]" in refused.value.remedy
