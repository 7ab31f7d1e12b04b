A=1
(A=2; python3 -m verl.trainer.main_ppo a=$A)
echo x | { read -r B; A=3; python3 -m verl.trainer.main_ppo a=$A b=$B; }
python3 -m verl.trainer.main_ppo a=$A b=${B:-unset}
