python3 -m verl.trainer.main_ppo a='single $X' b="double \"inner\" \$X \\ \x" c=esc\ aped d=$'t\tab\x41\'' e="a"'b'c f=""
