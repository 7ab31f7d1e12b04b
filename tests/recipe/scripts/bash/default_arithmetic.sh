MINI=16
python3 -m verl.trainer.main_ppo a.b=${BATCH:-$((MINI * 4))} c.d=${OTHER:-$(( (MINI + 1) / 2 ))}
