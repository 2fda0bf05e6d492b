"Fixtures that tests in several folders use."
import time

import accelerate
import pytest
import torch

# ways to build things in which new tensors are not ordinary ones on the CPU
ELSEWHERE = {
    'meta device': lambda: torch.device('meta'),
    'empty weights': accelerate.init_empty_weights,
    'empty weights and buffers': lambda: accelerate.init_empty_weights(include_buffers=True),
    'inference mode': torch.inference_mode,
}


@pytest.fixture(params=ELSEWHERE.values(), ids=ELSEWHERE)
def elsewhere(request): return request.param


@pytest.fixture
def processor_time(monkeypatch):
    "What is timed is this process's own work: beside it others share the machine."
    monkeypatch.setattr(time, 'perf_counter', time.process_time)
