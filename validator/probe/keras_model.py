"""The classifier of `training` as a user of Keras would write it, in Keras 2, Keras 3 and tf_keras alike."""

import sys
from typing import Any, Dict, Optional

from .training import CLASSES

#: So that five steps show in the loss, and the largest model that is used stays stable.
LEARNING_RATE = 0.1


def describe(tf: Any) -> Dict[str, Any]:
    """Which Keras `tf.keras` is: `package` (under `TF_USE_LEGACY_KERAS` it is `tf_keras`) and `version`."""
    package = tf.keras.Model.__module__.partition(".")[0]
    return {"package": package, "version": getattr(sys.modules[package], "__version__", None)}


def major(description: Dict[str, Any]) -> Optional[int]:
    """2 or 3; None where the version is unknown."""
    number = str(description["version"]).partition(".")[0]
    return int(number) if number.isdigit() else None


def classifier(tf: Any, image: int = 16, width: int = 8) -> Any:
    """A small convolutional model, untrained; the same weights each time.

    image: edge in pixels; width: channels of the first convolution, of which the second has twice as many.
    """
    keras = tf.keras
    keras.utils.set_random_seed(1)
    inputs = keras.Input((image, image, 3))
    hidden = keras.layers.Conv2D(width, 3, strides=2, padding="same", activation="relu")(inputs)
    hidden = keras.layers.BatchNormalization()(hidden)
    hidden = keras.layers.Conv2D(2 * width, 3, strides=2, padding="same", activation="relu")(hidden)
    # Over the whole image, so that the size of the image does not change the size of the gradients.
    hidden = keras.layers.GlobalAveragePooling2D()(hidden)
    # Under a policy of mixed precision the logits stay in float32, as Keras's guide to it asks.
    return keras.Model(inputs, keras.layers.Dense(CLASSES, dtype="float32")(hidden))


def compile_model(tf: Any, model: Any, loss: Optional[Any] = None, **settings: Any) -> Any:
    """Gradient descent on the cross entropy; `settings` go to `Model.compile`."""
    keras = tf.keras
    model.compile(
        optimizer=keras.optimizers.SGD(LEARNING_RATE),
        loss=loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        **settings,
    )
    return model
