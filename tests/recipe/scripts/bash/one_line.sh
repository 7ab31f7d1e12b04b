set -x;A=1;if true;then B=2;else B=3;fi;for i in 1;do C=$i;done;python3 -m verl.trainer.main_ppo a=$A b=$B c=$C
