"The engine in a page of its own, asked from Python: numbers go in, numbers come out."
from pathlib import Path

import torch

import eqtutor.widgets

SOURCE = (Path(eqtutor.widgets.__file__).parent/'engine.js').read_text(encoding='utf-8')
NAMES = 'readNetwork, readNetworks, rotate, act, relativeError, softmax'
PAGE = f'''<!DOCTYPE html><meta charset="utf-8"><title>engine</title>
<script type="module">
{SOURCE}
Object.assign(window, {{ {NAMES} }});
</script>'''


class EnginePage:
    "Calls of the engine in a browser."
    def __init__(self, page): self.page = page

    def ask(self, code, *given):
        "The value of a JavaScript function of what is given: numbers, lists, dictionaries."
        return self.page.evaluate(f'given => ({code})(...given)', list(given))

    def run(self, graph, *pictures):
        "What a network computes from each picture, as float64."
        code = '''(graph, pictures) => {
          const network = readNetwork(graph);
          return pictures.map(x => {
            const { data, shape } = network.run(x).get(network.output);
            return { data: [...data], shape };
          });
        }'''
        given = [x.flatten().tolist() for x in pictures]
        return [tensor_of(y) for y in self.ask(code, graph, given)]

    def turned(self, graph, picture):
        "For each element on the grid: the value of the moved picture, and the equivariance error."
        code = '''(graph, data) => {
          const network = readNetwork(graph);
          const { group } = network;
          const before = network.run(data).get(network.output);
          return group.matrices.flatMap((matrix, element) => {
            if (!matrix.flat().every(Number.isInteger)) return [];
            const moved = act(group, element, { data, shape: network.input });
            const after = network.run(moved.data).get(network.output);
            const error = relativeError(after.data, act(group, element, before).data);
            return [{ element, value: { data: [...after.data], shape: after.shape }, error }];
          });
        }'''
        return self.ask(code, graph, picture.flatten().tolist())


def tensor_of(value):
    "A value of the engine as a tensor without a batch axis."
    return torch.tensor(value['data'], dtype=torch.float64).view(value['shape'])
