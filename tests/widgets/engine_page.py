"The engine in a page of its own, asked from Python: numbers go in, numbers come out."
from pathlib import Path

import torch

import eqtutor.widgets
from eqtutor.actions import act

SOURCE = (Path(eqtutor.widgets.__file__).parent/'engine.js').read_text(encoding='utf-8')
NAMES = 'readNetwork, rotate, softmax'
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

    def turned(self, graph, group, picture):
        "For each element on the grid, which the identity is: what it makes of the moved picture."
        elements = [h for h, m in enumerate(group.matrices) if m.equal(m.round())]
        moved = [act(group, h, picture.double()) for h in elements]
        return dict(zip(elements, self.run(graph, *moved)))


def tensor_of(value):
    "A value of the engine as a tensor without a batch axis."
    return torch.tensor(value['data'], dtype=torch.float64).view(value['shape'])
