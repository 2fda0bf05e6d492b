"What networks cost beside the p4-CNN: `eqtutor bench NETWORK …`."
# Plain module: edited by hand, no notebook exports it.
from eqtutor.cost import CostRow, cost_table
from eqtutor.models.backbones import p4_cnn
from eqtutor.models.registry import get_model


def bench_networks(
    names:list[str], # as in `MODELS`
    batch:int,       # images in a step
    memory:bool,     # measure peak memory too, each network in a process of its own
)->list[tuple[str, list[CostRow]]]:
    "Titles and tables, one for each shape of the networks' pictures."
    chosen, tables, digit = [get_model(n) for n in names], [], (1, 28, 28)
    for shape in dict.fromkeys(m.input_shape for m in chosen):
        makers = {m.name: m.make for m in chosen if m.input_shape == shape}
        sides = '×'.join(map(str, shape))
        title = f'training step, batch {batch}, {sides}, over the p4-CNN'
        if shape != digit: title += ' on 28×28 digits'
        rows = cost_table(makers, (batch, *shape), p4_cnn, (batch, *digit), time=True,
                          memory=memory)
        tables.append((title, rows))
    return tables
