"""Continue the pretraining of a causal language model on text files with transformers' Trainer.

A plain training script that knows nothing of Trajectory Soup, for a study with its own trainer:

    trainer:
      command: >-
        python examples/run_clm.py --model {fork_point} --train data/*.txt --output_dir {output_dir}
        --learning_rate {peak_lr} --seed {seed} --batch {global_batch} --block {sequence_length}
        --max_steps {total_steps} --save_steps {checkpoint_steps} --warmup_steps {warmup_steps}
        --weight_decay {weight_decay} --beta1 {beta1} --beta2 {beta2} --clip {clip}
"""

import argparse
from itertools import chain
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


class Blocks(torch.utils.data.Dataset):
    """All files as one stream of tokens, cut into blocks."""

    def __init__(self, files, tokenizer, block):
        texts = [Path(file).read_text(encoding="utf-8") for file in files]
        end = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
        tokens = list(chain.from_iterable(tokenizer(text)["input_ids"] + end for text in texts))
        count = len(tokens) // block
        if count == 0:
            raise SystemExit(f"the files hold {len(tokens)} tokens, fewer than one block of {block}")
        self.blocks = torch.tensor(tokens[: count * block]).view(count, block)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, i):
        return {"input_ids": self.blocks[i], "labels": self.blocks[i]}


class OnlyTheLastResumes(TrainerCallback):
    """Optimizer state is twice the size of the weights; a run is resumed from its newest checkpoint alone."""

    def on_save(self, args, state, control, **_):
        for saved in Path(args.output_dir).glob("checkpoint-*/optimizer.pt"):
            if saved.parent.name != f"checkpoint-{state.global_step}":
                saved.unlink()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--train", nargs="+", required=True)
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--learning_rate", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--block", type=int, default=128)
    parser.add_argument("--max_steps", type=int, default=100)
    parser.add_argument("--save_steps", type=int, default=50)
    parser.add_argument("--warmup_steps", type=int, default=0)
    parser.add_argument("--weight_decay", type=float, default=0.1)
    parser.add_argument("--beta1", type=float, default=0.9)
    parser.add_argument("--beta2", type=float, default=0.95)
    parser.add_argument("--clip", type=float, default=1.0)
    args = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model)
    blocks = Blocks(args.train, tokenizer, args.block)
    arguments = TrainingArguments(
        output_dir=args.output_dir,
        per_device_train_batch_size=args.batch,
        learning_rate=args.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=args.warmup_steps,
        max_steps=args.max_steps,
        save_steps=args.save_steps,
        logging_steps=max(args.save_steps // 5, 1),
        weight_decay=args.weight_decay,
        adam_beta1=args.beta1,
        adam_beta2=args.beta2,
        max_grad_norm=args.clip,
        seed=args.seed,
        dataloader_drop_last=len(blocks) >= args.batch,  # whole batches only: branches meet at the same tokens
        include_num_input_tokens_seen=True,
        report_to="none",
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=blocks,
        processing_class=tokenizer,
        callbacks=[OnlyTheLastResumes()],
    )
    last = get_last_checkpoint(args.output_dir) if Path(args.output_dir).is_dir() else None
    trainer.train(resume_from_checkpoint=last)


if __name__ == "__main__":
    main()
