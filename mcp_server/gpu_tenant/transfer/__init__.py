"""Moves files between a box and this computer, fast and whole.

It verifies the bytes while they arrive. It knows channels and files, and nothing of leases.

`channel_pool` opens as many channels as `concurrency` finds worthwhile. Each has a thread (`worker`) that speaks
the `protocol` with the courier, our program on the box. Downloads are cut into `chunks`, gathered in a
`partial_file` each, and read back (`readback`) as they arrive. `download` puts that together. Uploads are in
`upload_worker` and `upload_state`.
"""
