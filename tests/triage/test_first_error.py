from reprise.triage.first_error import first_error

# The shape of a real failure: a worker dies in the weight sync, the mask and the echo follow.
LOG = """\
(TaskRunnerV1 pid=5) UserWarning: megatron engine is not available: ModuleNotFoundError("x")
(Server pid=7) (Worker pid=9) ERROR 11-29 13:26:01 [mp.py:10] WorkerProc hit an exception.
(Server pid=7) (Worker pid=9) ERROR 11-29 13:26:01 [mp.py:10] Traceback (most recent call last):
(Server pid=7) (Worker pid=9) ERROR 11-29 13:26:01 [mp.py:10]   File "a.py", line 3, in load
(Server pid=7) (Worker pid=9) ERROR 11-29 13:26:01 [mp.py:10] KeyError: 'layers.1.bias'
(Server pid=7) (Worker pid=9) ERROR 11-29 13:26:01 [mp.py:10] Traceback (most recent call last):
(Server pid=7) (Worker pid=9) ERROR 11-29 13:26:01 [mp.py:10] BufferError: cannot close
Error executing job with overrides: ['data.truncation=error']
Traceback (most recent call last):
ray.exceptions.RayTaskError(KeyError): ray::TaskRunner.run()
""".splitlines()


def test_the_first_exception_is_the_cause_not_its_consequences() -> None:
    found = first_error(LOG)
    assert found is not None
    assert (found.line, found.text) == (5, "KeyError: 'layers.1.bias'")
    assert found.process == "(Server pid=7) (Worker pid=9)"


def test_tracebacks_of_two_processes_may_interleave() -> None:
    lines = [
        "(A pid=1) Traceback (most recent call last):",
        "(B pid=2) Traceback (most recent call last):",
        '(A pid=1)   File "a.py", line 1, in f',
        "(B pid=2) ValueError: from b",
        "(A pid=1) OSError: from a",
    ]
    found = first_error(lines)
    assert found is not None and found.text == "ValueError: from b"


def test_an_echo_is_named_only_when_there_is_nothing_better() -> None:
    found = first_error(LOG[8:])
    assert found is not None and found.text.startswith("ray.exceptions.RayTaskError(KeyError)")


def test_an_echo_that_carries_the_remote_traceback_yields_its_last_line() -> None:
    remote = ['  File "fsdp.py", line 3, in pin', "RuntimeError: no accelerator"]
    found = first_error([*LOG[8:], *remote])
    assert found is not None and found.text == "RuntimeError: no accelerator"


def test_a_warning_that_mentions_an_error_is_none() -> None:
    assert first_error(LOG[:1]) is None
    assert first_error(["ValueError: printed by a user, outside any traceback"]) is None


def test_colours_are_read_through() -> None:
    lines = ["\x1b[36m(W pid=1)\x1b[0m Traceback (most recent call last):"]
    lines.append("\x1b[36m(W pid=1)\x1b[0m torch.OutOfMemoryError: CUDA out of memory.")
    found = first_error(lines)
    assert found is not None and found.text == "torch.OutOfMemoryError: CUDA out of memory."
