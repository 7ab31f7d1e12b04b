for lr in 1e-6 5e-6; do
  for n in 8 16; do
    [ $n = 16 ] && continue
    python3 -m verl.trainer.main_ppo lr=$lr n=$n
  done
done
