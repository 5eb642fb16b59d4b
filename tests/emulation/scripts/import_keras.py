import keras

print(keras.__version__, keras.backend.backend())
