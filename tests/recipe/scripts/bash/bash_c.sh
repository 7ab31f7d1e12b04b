export A=1; B=2
bash -c "python3 -m verl.trainer.main_ppo a=\$A b=$B c=\$B"
bash -c 'python3 -m verl.trainer.main_ppo zero=$0 "$@"' name x=1 y=2
