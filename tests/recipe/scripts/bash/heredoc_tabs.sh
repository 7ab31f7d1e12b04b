cat <<-END | while read -r line; do python3 -m verl.trainer.main_ppo "$line"; done
	data.a=1
	data.b=2
	END
