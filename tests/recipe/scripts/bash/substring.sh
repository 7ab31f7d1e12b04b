M=abcdefgh
python3 -m verl.trainer.main_ppo a=${M:2} b=${M:2:3} c=${M: -3} d=${M:1:-2} n=${#M}
