"""The room that knows the machines: hostfile, SSH, doctor, start and stop of Ray."""
