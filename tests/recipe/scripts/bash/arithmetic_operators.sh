A=3; B=4
python3 -m verl.trainer.main_ppo a=$((A << 2)) b=$((A > B ? A : B)) c=$((A ** B % 5)) d=$((-7 / 2)) e=$((-7 % 3)) \
  f=$((A & 1 | 8)) g=$((!A)) h=$((~A)) i=$((0x1f + 010)) j=$((A == 3 && B != 3))
