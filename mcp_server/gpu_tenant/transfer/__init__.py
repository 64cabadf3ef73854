"""Moves files between a box and this computer, fast and whole.

The bytes are verified while they arrive. This package knows channels and files, but no leases.

`channel_pool` opens as many channels as `concurrency` finds worthwhile. Each channel has a thread (`worker`),
which speaks the `protocol` with the courier. The courier is our program on the box. A download is cut into
`chunks`. The bytes of each file are gathered in a `partial_file`, and are read back (`readback`) while others
arrive. `download` combines these steps. Uploads are in `upload_worker` and `upload_state`.
"""
