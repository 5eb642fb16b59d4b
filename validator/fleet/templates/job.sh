#!/bin/bash
export SLURM_EXPORT_ENV=ALL
${setup}exec ${step}${job}
