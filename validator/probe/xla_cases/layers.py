"""Keras's layers, in training, with their gradients."""

from typing import Any, Callable, Tuple

from .case import IMAGES, ROWS, SEQUENCE, Case, Input, Ints


def _layer(name: str, *given: Input, core: bool = False, label: str = "", **settings: Any) -> Case:
    """A case of the Keras layer of that name, in training, with its gradients."""

    def make(tf: Any) -> Callable[..., Any]:
        layer = getattr(tf.keras.layers, name)(**settings)
        # These take a second tensor, or know no training.
        if name == "MultiHeadAttention":
            return lambda x: layer(x, x, training=True)
        if name in ("Dropout", "BatchNormalization", "LSTM", "GRU"):
            return lambda x: layer(x, training=True)
        return lambda *tensors: layer(*tensors)

    group = "recurrent layers" if name in ("LSTM", "GRU", "SimpleRNN", "Bidirectional") else "layers"
    return Case(label or name, group, make, given, gradient=True, core=core)


def _bidirectional(tf: Any) -> Callable[..., Any]:
    layers = tf.keras.layers
    layer = layers.Bidirectional(layers.LSTM(4))
    return lambda x: layer(x)


CASES: Tuple[Case, ...] = (
    _layer("Dense", ROWS, units=4, core=True),
    _layer("Conv2D", IMAGES, filters=4, kernel_size=3, core=True),
    _layer("Conv1D", SEQUENCE, filters=4, kernel_size=3),
    _layer("Conv2DTranspose", IMAGES, filters=4, kernel_size=3),
    _layer("SeparableConv2D", IMAGES, filters=4, kernel_size=3),
    _layer("DepthwiseConv2D", IMAGES, kernel_size=3),
    _layer("BatchNormalization", IMAGES),
    _layer("LayerNormalization", ROWS),
    _layer("MaxPooling2D", IMAGES),
    _layer("GlobalAveragePooling2D", IMAGES),
    _layer("UpSampling2D", IMAGES, interpolation="bilinear"),
    _layer("Embedding", Ints((4, 6)), input_dim=8, output_dim=4),
    _layer("MultiHeadAttention", SEQUENCE, num_heads=2, key_dim=4),
    _layer("Dropout", ROWS, rate=0.5),
    _layer("LSTM", SEQUENCE, units=4),
    _layer("LSTM", SEQUENCE, units=4, recurrent_dropout=0.2, label="LSTM, recurrent dropout"),
    _layer("GRU", SEQUENCE, units=4),
    _layer("SimpleRNN", SEQUENCE, units=4),
    Case("Bidirectional", "recurrent layers", _bidirectional, (SEQUENCE,), gradient=True),
)
