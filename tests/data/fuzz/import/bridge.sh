python run.py --recipe llama3_8b --num_gpus 8 model.num_layers=4 train.micro_batch_size=1 +model.cp_comm_type=[p2p] mixed_precision=bf16_mixed
