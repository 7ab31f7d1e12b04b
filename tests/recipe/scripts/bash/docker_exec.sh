TP=2
docker exec -e A=1 trainer bash -lc "python3 -m verl.trainer.main_ppo tp=$TP"
