if=1; then=2; done=3
echo if then done
python3 -m verl.trainer.main_ppo if=$if then=$then done=$done in fi { } !
