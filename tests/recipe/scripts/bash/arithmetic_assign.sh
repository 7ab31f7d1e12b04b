A=3; ((A += 2)); ((B = A * 2, C = B - 1)); let "D = C ** 2"; let E=D+1
python3 -m verl.trainer.main_ppo a=$A b=$B c=$C d=$D e=$E f=$((A++)) g=$A h=$((--A)) i=$((A--)) j=$A
